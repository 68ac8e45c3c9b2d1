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

/** Return the elements, lines and clicks of what lit-html is given to draw, without the words of a message. */
export function structure(drawn: unknown, words: ReadonlySet<unknown>): unknown {
  if (drawn instanceof Array) {
    return drawn.map(one => structure(one, words));
  }
  const { strings, values } = (drawn ?? {}) as { strings?: readonly string[]; values?: unknown[] };
  if (strings && values) {
    return [...strings, structure(values, words)];
  }
  return typeof drawn === 'function' ? 'click' : words.has(drawn) ? '' : drawn;
}
