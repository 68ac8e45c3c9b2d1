// Small states for tests.

import type { Gpu, Row, State } from '../src/view/wire';

export const GIB = 2 ** 30;

export function row(rest: Partial<Row> = {}): Row {
  return { gpu: '0', who: 'mine', owner: 'a.ipynb', ...rest };
}

export function gpu(rest: Partial<Gpu> = {}): Gpu {
  return { uuid: 'GPU-0', name: 'A100', used: 10 * GIB, total: 80 * GIB, free: 70 * GIB, ...rest };
}

export function state(rest: Partial<State> = {}): State {
  return { time: 1000, gpus: { 0: gpu() }, rows: {}, ...rest };
}
