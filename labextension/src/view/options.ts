// What decides how a state is drawn, apart from the state: the reader's choices, and what can be done with a row.

import type { Unit } from './format';
import type { Order } from './model';
import type { Row } from './wire';
import type { Translation } from './translation';

/** What can be done with the kernel behind a row. What is missing is not offered. */
export interface Actions {
  open?: (row: Row) => void;
  restart?: (row: Row) => void;
  shutDown?: (row: Row) => void;
  /** End an isolated cell or call, and nothing else of its notebook. */
  stop?: (row: Row) => void;
}

/** What is shown; all of it where nothing is said. */
export interface Shown {
  others?: boolean;
  history?: boolean;
  notes?: boolean;
}

export interface Options {
  trans?: Translation;
  unit?: Unit;
  order?: Order;
  /** Told when the reader chose another order. */
  ordered?: (order: Order) => void;
  show?: Shown;
  actions?: Actions;
  /** The path of the notebook that the reader is in. */
  current?: string | undefined;
  /** Ask for new figures; where it is given, there is a button for it. */
  refresh?: (() => void) | undefined;
  /** Told whether any of it can be seen where it stands: not scrolled away, and in no tab that is not shown. */
  seen?: (seen: boolean) => void;
}

/** Options made whole, and what a drawing needs besides. */
export interface Look {
  trans: Translation;
  unit: Unit;
  order: Order;
  show: Required<Shown>;
  actions: Actions;
  current: string | undefined;
  refresh: (() => void) | undefined;
  /** Labels of the GPUs of which all rows are shown. */
  unfolded: Set<string>;
  /** Changes with every choice, so that what was drawn before is drawn again. */
  version: number;
}

/** Looks that differ: colours by patterns. Together they are as many as there are tones. */
export const LOOKS = { colours: 4, patterns: 3 };

/** The classes that draw a tone. */
export function toneClass(tone: number): string {
  return `tfgpu-view-c${tone % LOOKS.colours} tfgpu-view-p${tone % LOOKS.patterns}`;
}
