// The user's choices: the settings as one value, read again when they change, with defaults.

import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { Widget } from '@lumino/widgets';
import { ORDERS, type Order } from '../view/model';
import type { Unit } from '../view/format';

export interface Choices {
  /** Seconds between two readings. */
  every: number;
  /** Percent of a GPU from which on there is a notification; 0 for never. */
  threshold: number;
  unit: Unit;
  order: Order;
  others: boolean;
  history: boolean;
  notes: boolean;
  statusBar: boolean;
}

export const USUAL: Choices = {
  every: 1,
  threshold: 90,
  unit: 'GiB',
  order: 'held',
  others: true,
  history: true,
  notes: true,
  statusBar: true
};

const UNITS: readonly Unit[] = ['GiB', 'GB', 'MiB'];
const RATES: readonly number[] = [1, 2, 5, 10];

/** Read settings; a value that does not fit the schema gets its default. */
export function read(settings: Pick<ISettingRegistry.ISettings, 'composite'>): Choices {
  const value = settings.composite;
  const flag = (name: 'others' | 'history' | 'notes' | 'statusBar'): boolean => value[name] !== false;
  const threshold = Number(value['threshold'] ?? USUAL.threshold);
  return {
    every: RATES.find(rate => rate === value['every']) ?? USUAL.every,
    threshold: threshold >= 0 && threshold <= 100 ? threshold : USUAL.threshold,
    unit: UNITS.find(unit => unit === value['unit']) ?? USUAL.unit,
    order: ORDERS.find(order => order === value['order']) ?? USUAL.order,
    others: flag('others'),
    history: flag('history'),
    notes: flag('notes'),
    statusBar: flag('statusBar')
  };
}

/**
 * Apply the user's choices, now and at each change, until a widget is disposed of.
 *
 * @param registry - the registry of settings; null where there is none.
 * @param id - the plugin's.
 * @returns a function that sets another order, and saves it where there is a registry.
 */
export function followChoices(
  registry: Pick<ISettingRegistry, 'load'> | null,
  id: string,
  owner: Pick<Widget, 'disposed'>,
  apply: (choices: Choices) => void
): (order: Order) => void {
  let order = (chosen: Order): void => apply({ ...USUAL, order: chosen });
  if (!registry) {
    apply(USUAL);
    return chosen => order(chosen);
  }
  registry
    .load(id)
    .then(settings => {
      order = chosen =>
        void settings.set('order', chosen).catch((reason: unknown) => {
          console.error(`${id} cannot keep the order of the rows:`, reason);
        });
      const changed = (): void => apply(read(settings));
      settings.changed.connect(changed);
      owner.disposed.connect(() => settings.changed.disconnect(changed));
      changed();
    })
    .catch((reason: unknown) => {
      console.error(`${id} goes without its settings:`, reason);
      apply(USUAL);
    });
  return chosen => order(chosen);
}
