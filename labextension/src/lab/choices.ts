// The user's choices: the settings as one value, again when they change, with defaults.

import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { Widget } from '@lumino/widgets';
import type { Order } from '../view/model';
import type { Unit } from '../view/format';
import type { Span } from '../view/history';

export interface Choices {
  /** Percent of a GPU from which on there is a notification; 0 for never. */
  threshold: number;
  unit: Unit;
  order: Order;
  others: boolean;
  history: boolean;
  notes: boolean;
  /** Whether each GPU's use, temperature and power are shown. */
  sensors: boolean;
  /** How much of the history is drawn, in seconds. */
  span: Span;
  /** Hours of memory held without use after which there is a notification; 0 for never. */
  unused: number;
  statusBar: boolean;
}

/** The choices that are made in the view too, and kept. */
export type Kept = Pick<Choices, 'order' | 'span'>;

export const USUAL: Choices = {
  threshold: 90,
  unit: 'GiB',
  order: 'held',
  others: true,
  history: true,
  notes: true,
  sensors: true,
  span: 600,
  unused: 2,
  statusBar: true
};

/**
 * Apply the user's choices, now and at each change, until a widget is disposed of.
 *
 * @param registry - the registry of settings; null where there is none.
 * @param id - the plugin's.
 * @returns a function that sets another order or span, and saves it where there is a registry.
 */
export function followChoices(
  registry: Pick<ISettingRegistry, 'load'> | null,
  id: string,
  owner: Pick<Widget, 'disposed'>,
  apply: (choices: Choices) => void
): (chosen: Partial<Kept>) => void {
  let without: Choices = USUAL;
  let keep = (chosen: Partial<Kept>): void => apply((without = { ...without, ...chosen }));
  if (!registry) {
    apply(USUAL);
    return chosen => keep(chosen);
  }
  registry
    .load(id)
    .then(settings => {
      keep = chosen => {
        for (const [name, value] of Object.entries(chosen)) {
          settings.set(name, value).catch((reason: unknown) => {
            console.error(`${id} cannot keep the setting ${name}:`, reason);
          });
        }
      };
      const changed = (): void => apply({ ...USUAL, ...settings.composite }); // the schema holds of them
      settings.changed.connect(changed);
      owner.disposed.connect(() => settings.changed.disconnect(changed));
      changed();
    })
    .catch((reason: unknown) => {
      console.error(`${id} goes without its settings:`, reason);
      apply(USUAL);
    });
  return chosen => keep(chosen);
}
