// The user's settings as one value, again when they change, with defaults.

import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Signal } from '@lumino/signaling';
import type { Order } from '../view/model';
import type { Unit } from '../view/format';
import type { Span } from '../view/history';

/** The plugin whose schema has them. */
export const ID = 'tfgpu-magic:plugin';

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

export class Settings {
  /** @param registry - null where there is none. */
  constructor(registry: Pick<ISettingRegistry, 'load'> | null) {
    if (!registry) {
      this.apply(USUAL);
      return;
    }
    registry
      .load(ID)
      .then(saved => {
        const read = (): void => this.apply({ ...USUAL, ...saved.composite }); // the schema holds of them
        this.saved = saved;
        saved.changed.connect(read);
        read();
      })
      .catch((reason: unknown) => {
        console.error(`${ID} goes without its settings:`, reason);
        this.apply(USUAL);
      });
  }

  /** As they are now; the usual ones until they are read. */
  get now(): Choices {
    return this.applied ?? USUAL;
  }

  /** Apply them, once they are read and at each change. */
  follow(apply: (choices: Choices) => void): void {
    this.changed.connect((_, choices) => apply(choices));
    if (this.applied) {
      apply(this.applied);
    }
  }

  /** Set another order or span, and save it where there is a registry. */
  keep(chosen: Partial<Kept>): void {
    if (!this.saved) {
      this.apply({ ...this.now, ...chosen });
      return;
    }
    for (const [name, value] of Object.entries(chosen)) {
      this.saved.set(name, value).catch((reason: unknown) => {
        console.error(`${ID} cannot keep the setting ${name}:`, reason);
      });
    }
  }

  private apply(choices: Choices): void {
    this.applied = choices;
    this.changed.emit(choices);
  }

  private applied: Choices | null = null;
  private saved: ISettingRegistry.ISettings | null = null;
  private changed = new Signal<this, Choices>(this);
}
