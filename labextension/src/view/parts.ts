// A bar's parts: the user's own rows one by one, those too narrow to be distinguished together, and the rest. Pure.

import { own, type Entry } from './model';
import type { Gpu, Row } from './wire';

/** A part of a bar. */
export interface Part {
  key: string;
  what: 'own' | 'small' | 'others' | 'free';
  /** The row, if the part is a notebook's own. */
  row?: Row;
  size: number;
  /** How many rows it stands for. */
  count: number;
}

/** The part of a bar that is too narrow to be distinguished: three pixels of the panel. */
const NARROW = 0.012;

/** The parts of a GPU's bar. They may add up to less than the total, which includes the driver's reserve. */
export function parts(gpu: Gpu, entries: readonly Entry[]): { parts: Part[]; whole: number } {
  const mine: Part[] = [];
  const small: Part = { key: 'small', what: 'small', size: 0, count: 0 };
  const least = NARROW * (gpu.total ?? 0);
  for (const { key, row } of entries) {
    const size = row.held ?? 0;
    if (!size || !own(row)) {
      continue;
    }
    if (size < least) {
      small.size += size;
      small.count += 1;
    } else {
      mine.push({ key, what: 'own', row, size, count: 1 });
    }
  }
  const others: Part = { key: 'others', what: 'others', size: gpu.others ?? 0, count: 0 };
  const free: Part = { key: 'free', what: 'free', size: gpu.free ?? 0, count: 0 };
  const shown = [...mine, small, others, free].filter(part => part.size > 0);
  const sum = shown.reduce((size, part) => size + part.size, 0);
  return { parts: shown, whole: Math.max(gpu.total ?? 0, sum) };
}
