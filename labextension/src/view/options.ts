// The options that decide how a state is drawn: the user's choices, and the actions on a row.

import type { Translation, Unit } from './format';
import type { Span } from './history';
import type { Order } from './model';
import type { Row } from './wire';

/** The actions on the kernel behind a row. A missing one is not offered. */
export interface Actions {
  open?: (row: Row) => void;
  /** Choose how much GPU memory the notebook may take. */
  choose?: (row: Row) => void;
  restart?: (row: Row) => void;
  shutDown?: (row: Row) => void;
  /** End an isolated cell or call, and nothing else of its notebook; or a notebook's wait for room. */
  stop?: (row: Row) => void;
  /** End a process of the user's own that no kernel of this server is. */
  end?: (row: Row) => void;
}

/** What is shown; by default all of it. */
export interface Shown {
  others?: boolean;
  history?: boolean;
  notes?: boolean;
  /** How much each GPU is used, its temperature and its power. */
  sensors?: boolean;
}

export interface Options {
  trans?: Translation;
  unit?: Unit;
  order?: Order;
  /** Called when the user chose another order. */
  ordered?: (order: Order) => void;
  /** How much of the history is drawn. */
  span?: Span;
  /** Called when the user chose another span. */
  spanned?: (span: Span) => void;
  /** Whether the history shows how much each GPU computes, too; the user can choose that. */
  use?: boolean;
  show?: Shown;
  actions?: Actions;
  /** The path of the user's current notebook. */
  current?: string | undefined;
  /** Asks for new figures; where it is given, there is a button for it. */
  refresh?: (() => void) | undefined;
  /** Called with whether any of it is visible: not scrolled away, and not in a hidden tab. */
  seen?: (seen: boolean) => void;
}

/** The options with their defaults, and what a drawing needs besides. */
export interface Look {
  trans: Translation;
  unit: Unit;
  order: Order;
  span: Span;
  use: boolean;
  show: Required<Shown>;
  actions: Actions;
  current: string | undefined;
  refresh: (() => void) | undefined;
  /** Labels of the GPUs of which all rows are shown. */
  unfolded: Set<string>;
  /** A number that changes with every choice, so that everything is drawn again. */
  version: number;
}

/** Colours and patterns: their combinations are as many as there are tones (`tell/tabulate.py`). */
export const LOOKS = { colours: 4, patterns: 3 };

/** The classes that draw a tone. */
export function toneClass(tone: number): string {
  return `tfgpu-view-c${tone % LOOKS.colours} tfgpu-view-p${tone % LOOKS.patterns}`;
}
