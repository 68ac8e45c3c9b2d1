// Puts a state's GPUs and rows in order. `gpu.ts` and `row.ts` draw them; `tell/tabulate.py` has computed them.

import type { Gpu, Row, State } from './wire';

export type Order = 'held' | 'name' | 'activity';
export const ORDERS: readonly Order[] = ['held', 'name', 'activity'];

/** A row with its key, which stays the same from state to state. */
export interface Entry {
  key: string;
  row: Row;
}

/** Percent of a GPU from which on it is marked. */
const FULL = 90;

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' });

const COMPARE: Record<Order, (a: Row, b: Row) => number> = {
  held: (a, b) => (b.held ?? -1) - (a.held ?? -1),
  name: (a, b) => collator.compare(a.owner, b.owner),
  activity: (a, b) => +(b.state === 'busy') - +(a.state === 'busy') || (b.active ?? 0) - (a.active ?? 0)
};

/** Whether a row is of the user's own processes. */
export function own(row: Row): boolean {
  return row.who === 'this' || row.who === 'mine';
}

/** Labels of GPUs in order: `0`, `0.1`, `1`, `10`. */
export function labels(state: State): string[] {
  return Object.keys(state.gpus).sort(collator.compare);
}

/** By how much another GPU must be fuller than the one that was fullest. */
const FULLER = 0.05;

/**
 * The label of the GPU with the largest part used, among those with figures; null if there is none.
 *
 * @param before - the label before, which it stays until another GPU is clearly fuller.
 */
export function fullest(state: State, before: string | null = null): string | null {
  let best: string | null = null;
  let most = -1;
  for (const label of labels(state)) {
    const { total } = state.gpus[label]!;
    const used = taken(state.gpus[label]!);
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

/** The bytes that nobody else can have: programs of the processor, too, use memory that it shares with a GPU. */
export function taken({ used, total, free, unified }: Gpu): number | undefined {
  return unified && total && free !== undefined ? total - free : used;
}

/** The part of a GPU, or of what the viewer may have, that is used, in percent, where that is nearly all. */
export function nearlyFull(gpu: Gpu): number | undefined {
  const { total, free, limit } = gpu;
  const [used, whole] = limit && free !== undefined ? [limit - free, limit] : [taken(gpu), total];
  const percent = used !== undefined && whole ? Math.floor((100 * used) / whole) : 0;
  return percent >= FULL ? Math.min(percent, 100) : undefined;
}

/** Puts rows in order, anew only where they or the order have changed. */
export class Sorter {
  /** Rows by GPU, in order. */
  sort(state: State, order: Order): Map<string, Entry[]> {
    if (state.rows === this.rows && order === this.order) {
      return this.sorted;
    }
    const sorted = new Map<string, Entry[]>();
    for (const [key, row] of Object.entries(state.rows)) {
      const list = sorted.get(row.gpu);
      list ? list.push({ key, row }) : sorted.set(row.gpu, [{ key, row }]);
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
