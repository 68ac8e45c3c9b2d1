// The reader's choices: the settings, read into one value, with what holds where there are none.

import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ORDERS, type Order } from '../view/model';
import type { Unit } from '../view/format';

export interface Choices {
  /** Seconds between two readings. */
  every: number;
  /** Percent of a GPU from which on a notification is given; 0 for never. */
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

/** Read settings; what is not as the schema wants it is as usual. */
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
