// Tells the owner of a notebook that it has long held memory without using it: in a notification, with what to do.

import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ago, cut, withUnit, type Unit } from '../view/format';
import type { Actions } from '../view/options';
import type { Store } from '../view/store';
import { canPark } from '../view/parking';
import type { Row, State } from '../view/wire';
import { kernelRow } from './restart';
import { Reminder, unused, type Held, type Keeper } from './reminder';

export interface Means {
  trans: TranslationBundle;
  actions: Pick<Required<Actions>, 'open' | 'park' | 'restart' | 'shutDown'>;
  unit: () => Unit;
  /** After how many hours without use; 0 for never. */
  hours: () => number;
  keeper: Keeper;
}

/** Characters of a name: JupyterLab shows 140 of a notification. */
const SHOWN = 60;

/** Seconds between two checks: what is told is hours old. */
const CHECK_EVERY = 10;

/** Tell of notebooks as they become long unused; returns a function that ends that. */
export function followUnused(store: Store, means: Means): () => void {
  const reminder = new Reminder(means.keeper);
  const shown = new Map<string, string>();
  let checked = 0;
  const tell = (one: Held, time: number): void => {
    const kernel = one.row.kernel!;
    // It may be clicked tomorrow, and the notebook may be busy by then.
    const notToday = (): void => reminder.notToday(kernel, store.state?.time ?? time);
    const row = (): Row => kernelRow(store, kernel) ?? one.row;
    shown.set(kernel, notify(one, time, means, { row, notToday }));
  };
  return store.subscribe(() => {
    const { state, link } = store;
    const early = state !== null && Math.abs(state.time - checked) < CHECK_EVERY;
    if (!state || early || state.error || state.stale !== undefined || link.kind !== 'live') {
      return;
    }
    checked = state.time;
    forget(shown, state);
    reminder.check(state, means.hours()).forEach(one => tell(one, state.time));
  });
}

/** Take back what is not so any more. */
function forget(shown: Map<string, string>, state: State): void {
  if (!shown.size) {
    return;
  }
  const still = new Set(unused(state).map(({ row }) => row.kernel));
  for (const [kernel, id] of shown) {
    if (!still.has(kernel)) {
      Notification.dismiss(id);
      shown.delete(kernel);
    }
  }
}

/** The row of a notebook as it is when a button is clicked, and what one of them does. */
interface Later {
  row: () => Row;
  notToday: () => void;
}

function notify(told: Held, now: number, { trans, actions, unit }: Means, { row, notToday }: Later): string {
  const text = trans.__(
    '%1 has held %2 for %3 without using it',
    cut(told.row.owner, SHOWN),
    withUnit(told.held, unit()),
    ago(now - told.since, trans)
  );
  const open = told.row.path === undefined ? [] : [{ label: trans.__('Open'), callback: () => actions.open(row()) }];
  const park = canPark(told.row) ? [{ label: trans.__('Park'), callback: () => actions.park(row()) }] : [];
  return Notification.info(text, {
    autoClose: false,
    actions: [
      ...open,
      ...park,
      { label: trans.__('Restart…'), callback: () => actions.restart(row()) },
      { label: trans.__('Shut Down…'), callback: () => actions.shutDown(row()) },
      { label: trans.__('Not Today'), callback: notToday }
    ]
  });
}
