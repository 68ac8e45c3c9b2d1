// A state as it is drawn: rows by GPU in their order, and whose each part of a bar is. What it looks like, others say.

import type { Gpu, Row, State } from './wire';

export type Order = 'held' | 'name' | 'activity';
export const ORDERS: readonly Order[] = ['held', 'name', 'activity'];

/** A row with its key, which stays the same from state to state. */
export interface Entry {
  key: string;
  row: Row;
}

/** A part of a bar. */
export interface Part {
  key: string;
  what: 'own' | 'small' | 'others' | 'free';
  /** Whose it is, if it is a notebook's own. */
  row?: Row;
  size: number;
  /** How many rows it stands for. */
  count: number;
}

/** Seconds without activity, and bytes, from which on a notebook's memory is worth asking back. */
const IDLE = 300;
const WORTH = 2 ** 28;

/** Percent of a GPU from which on it is marked. */
const FULL = 90;

/** The part of a bar that is too narrow to be told apart: three pixels of the panel. */
const NARROW = 0.012;

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });

const COMPARE: Record<Order, (a: Row, b: Row) => number> = {
  held: (a, b) => (known(b) ?? -1) - (known(a) ?? -1),
  name: (a, b) => collator.compare(a.owner, b.owner),
  activity: (a, b) => +(b.state === 'busy') - +(a.state === 'busy') || (b.active ?? 0) - (a.active ?? 0)
};

/** Whether a row is of the reader's own processes. */
export function own(row: Row): boolean {
  return row.who === 'this' || row.who === 'mine';
}

/** The bytes that a row surely takes: held, or what it says itself where the driver cannot list it, as in a container. */
export function known(row: Row): number | undefined {
  return row.held ?? row.taken;
}

/** Labels of GPUs in order: `0`, `0.1`, `1`, `10`. */
export function labels(state: State): string[] {
  return Object.keys(state.gpus).sort(collator.compare);
}

/** By how much another GPU must be fuller than the one that was fullest. */
const FULLER = 0.05;

/**
 * The label of the GPU with the largest part used, among those that tell; null if none does.
 *
 * @param before - the one that it was, which it stays until another is clearly fuller.
 */
export function fullest(state: State, before: string | null = null): string | null {
  let best: string | null = null;
  let most = -1;
  for (const label of labels(state)) {
    const { used, total } = state.gpus[label]!;
    if (used === undefined || !total) {
      continue;
    }
    const part = used / total + (label === before ? FULLER : 0);
    if (part > most) {
      most = part;
      best = label;
    }
  }
  return best;
}

/** The part of a GPU that is used, in percent, where that is nearly all; else undefined. */
export function nearlyFull({ used, total }: Gpu): number | undefined {
  const percent = used !== undefined && total ? Math.floor((100 * used) / total) : 0;
  return percent >= FULL ? Math.min(percent, 100) : undefined;
}

/** The bytes that shutting a notebook down brings back, where it keeps most of them without using them; else 0. */
export function spare(row: Row, now: number): number {
  const { held, active } = row;
  const used = row.in_use === undefined ? row.torch_allocated : row.in_use + (row.torch_allocated ?? 0);
  if (row.who !== 'mine' || row.state !== 'idle' || held === undefined || used === undefined || active === undefined) {
    return 0;
  }
  return !row.child && now - active >= IDLE && held - used >= WORTH ? held : 0;
}

/** Puts rows in order. It starts from the order before, since most of them keep their places. */
export class Sorter {
  /** Rows by GPU, in order. */
  sort(state: State, order: Order): Map<string, Entry[]> {
    if (state.rows === this.rows && order === this.order) {
      return this.sorted;
    }
    const sorted = new Map<string, Entry[]>();
    const keys = Object.keys(state.rows);
    const add = (key: string, row: Row): void => {
      const list = sorted.get(row.gpu);
      list ? list.push({ key, row }) : sorted.set(row.gpu, [{ key, row }]);
    };
    let count = 0;
    for (const entries of this.sorted.values()) {
      for (const { key } of entries) {
        if (Object.hasOwn(state.rows, key)) {
          add(key, state.rows[key]!);
          count += 1;
        }
      }
    }
    if (count < keys.length) {
      const known = this.rows ?? {};
      keys.filter(key => !Object.hasOwn(known, key)).forEach(key => add(key, state.rows[key]!));
    }
    const compare = COMPARE[order];
    for (const entries of sorted.values()) {
      entries.sort((a, b) => compare(a.row, b.row) || (a.key < b.key ? -1 : 1));
    }
    this.rows = state.rows;
    this.order = order;
    this.sorted = sorted;
    return sorted;
  }

  private rows: State['rows'] | null = null;
  private order: Order = 'held';
  private sorted = new Map<string, Entry[]>();
}

/**
 * Say whose a GPU's memory is.
 *
 * What is used and of no notebook of the reader's is others', whether a row names it or not. The parts may add up to
 * less than the total, which the driver's reserve is part of too.
 */
export function parts(gpu: Gpu, entries: readonly Entry[]): { parts: Part[]; whole: number } {
  const mine: Part[] = [];
  const small: Part = { key: 'small', what: 'small', size: 0, count: 0 };
  const others: Part = { key: 'others', what: 'others', size: 0, count: 0 };
  const least = NARROW * (gpu.total ?? 0);
  let held = 0;
  for (const { key, row } of entries) {
    const size = known(row) ?? 0;
    if (!size) {
      continue;
    }
    if (!own(row)) {
      others.size += size;
      others.count += 1;
      continue;
    }
    held += size;
    if (size < least) {
      small.size += size;
      small.count += 1;
    } else {
      mine.push({ key, what: 'own', row, size, count: 1 });
    }
  }
  if (gpu.used !== undefined) {
    others.size = Math.max(others.size, gpu.used - held);
  }
  const free = gpu.free ?? Math.max(0, (gpu.total ?? 0) - held - others.size);
  const all = [...mine, small, others, { key: 'free', what: 'free', size: free, count: 0 } satisfies Part];
  const shown = all.filter(part => part.size > 0);
  return {
    parts: shown,
    whole: Math.max(
      gpu.total ?? 0,
      shown.reduce((sum, part) => sum + part.size, 0)
    )
  };
}
