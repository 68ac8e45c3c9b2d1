// Shows what is news in notifications, with what can be done about it.

import { Notification } from '@jupyterlab/apputils';
import { ago, cut, share, withUnit } from '../view/format';
import { canPark } from '../view/parking';
import type { Row, State } from '../view/wire';
import { unused, type Held } from './kernels';
import type { IGpuMemory } from './memory';
import { Alarm, Reminder } from './news';
import { kernelRow } from './restart';

/** Characters of a name: JupyterLab shows 140 of a notification. */
const SHOWN = 60;

/** Seconds between two looks for unused memory: what is told of it is hours old. */
const CHECK_EVERY = 10;

/** What the pages of this browser share; a browser may refuse it, which is found out when it is used. */
const reminder = (): Reminder =>
  new Reminder({
    getItem: key => window.localStorage.getItem(key),
    setItem: (key, text) => window.localStorage.setItem(key, text)
  });

export class Notifications {
  constructor(private memory: IGpuMemory) {
    memory.stream.subscribe(() => {
      const { state, link } = memory.stream;
      if (state && !state.error && state.stale === undefined && link.kind === 'live') {
        this.check(state);
      }
    });
  }

  private check(state: State): void {
    const { threshold, unused: hours } = this.memory.choices;
    const full = this.alarm.check(state, threshold);
    if (full.length) {
      this.tellFull(full, state);
    }
    if (Math.abs(state.time - this.checked) >= CHECK_EVERY) {
      this.checked = state.time;
      this.forget(state);
      this.reminder.check(state, hours).forEach(one => this.tellUnused(one, state.time));
    }
  }

  private tellFull(labels: readonly string[], state: State): void {
    const { trans, choices, open } = this.memory;
    const lines = labels.map(label => {
      const { used, total } = state.gpus[label]!;
      const percent = Math.min(100, Math.floor((100 * used!) / total!));
      return trans.__('GPU %1 is %2% full: %3', label, percent, share(used, total, choices.unit));
    });
    Notification.warning(lines.join('. '), {
      autoClose: 10_000,
      actions: [{ label: trans.__('Show who holds it'), callback: open }]
    });
  }

  private tellUnused(told: Held, now: number): void {
    const { trans, choices, actions, stream } = this.memory;
    const kernel = told.row.kernel!;
    // A button may be clicked tomorrow, and the notebook may be busy by then.
    const row = (): Row => kernelRow(stream, kernel) ?? told.row;
    const text = trans.__(
      '%1 has held %2 for %3 without using it',
      cut(told.row.owner, SHOWN),
      withUnit(told.held, choices.unit),
      ago(now - told.since, trans)
    );
    const first = canPark(told.row)
      ? { label: trans.__('Park'), callback: () => actions.park(row()) }
      : { label: trans.__('Open'), callback: () => actions.open(row()) };
    const id = Notification.info(text, {
      autoClose: false,
      actions: [
        first,
        { label: trans.__('Shut Down…'), callback: () => actions.shutDown(row()) },
        {
          label: trans.__('Not Today'),
          callback: () => this.reminder.notToday(kernel, stream.state?.time ?? now)
        }
      ]
    });
    this.shown.set(kernel, id);
  }

  /** Take back what is not so any more. */
  private forget(state: State): void {
    const still = this.shown.size ? new Set(unused(state).map(({ row }) => row.kernel)) : null;
    for (const [kernel, id] of this.shown) {
      if (!still?.has(kernel)) {
        Notification.dismiss(id);
        this.shown.delete(kernel);
      }
    }
  }

  private checked = 0;
  private alarm = new Alarm();
  private reminder = reminder();
  /** Notifications of unused memory, by kernel. */
  private shown = new Map<string, string>();
}
