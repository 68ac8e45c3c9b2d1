// What is known of a row besides what it holds, as words and figures. Pure.

import { cut, figure, withUnit, type Unit } from './format';
import type { Row } from './wire';
import type { Words } from './words';

/** Characters of a policy that are shown. */
const SHOWN = 200;

/** A word and its figure; either may be empty. */
export type Fact = readonly [what: string, value: string];

/** What frameworks say of a row's process, and the policy that it goes by. */
export function facts(row: Row, unit: Unit, words: Words): Fact[] {
  const said: Fact[] = [];
  const add = (what: string, size: number | undefined): void => {
    if (size !== undefined) {
      said.push([what, small(size, unit)]);
    }
  };
  if (row.in_use === 0 && row.peak === 0) {
    said.push([words.__('never used'), '']); // as of the other GPUs of a TensorFlow that was told nothing
  } else {
    add(words.__('in use'), row.in_use);
    add(words.__('peak'), row.peak);
  }
  if (row.policy) {
    said.push(['', cut(row.policy, SHOWN)]);
  }
  add(words.__('PyTorch allocated'), row.torch_allocated);
  add(words.__('reserved'), row.torch_reserved);
  return said;
}

/** A figure in the unit that stands above; what is too small for that has one of its own. */
function small(size: number, unit: Unit): string {
  const text = figure(size, unit);
  return text.startsWith('<') ? withUnit(size, 'MiB') : text;
}
