// The facts of a row besides what it holds, as words and figures. Pure.

import { cut, figure, withUnit, type Unit } from './format';
import type { Row } from './wire';
import type { Translation } from './translation';

/** Characters of a policy that are shown. */
const SHOWN = 200;

/** A word and its figure; either may be empty. */
export type Fact = readonly [what: string, value: string];

/** The framework that the policy is for: its figures stand beside the policy, without its name. */
const OWN = 'TensorFlow';

/** Return the frameworks' figures on a row's process, its policy, and how much of the GPU it uses. */
export function facts(row: Row, unit: Unit, trans: Translation): Fact[] {
  const { [OWN]: own = {}, ...others } = row.figures ?? {};
  const policy: Fact[] = row.policy ? [['', cut(row.policy, SHOWN)]] : [];
  return [
    ...said('', own, unit, trans),
    ...policy,
    ...Object.entries(others).flatMap(([name, its]) => said(`${name} `, its, unit, trans)),
    ...(row.utilisation ? [[trans.__('use'), trans.__('%1%', row.utilisation)] as const] : [])
  ];
}

/** Whether frameworks say that nothing was ever made on the GPU: the process has a context there, or a pool. */
export function neverUsed({ figures = {} }: Row): boolean {
  return nothing(Object.values(figures).flatMap(its => Object.values(its)));
}

function nothing(sizes: readonly number[]): boolean {
  return sizes.length > 0 && sizes.every(size => size === 0);
}

/** A framework's figures; its name stands before the first. */
function said(name: string, figures: Record<string, number>, unit: Unit, trans: Translation): Fact[] {
  const all = Object.entries(figures);
  if (nothing(Object.values(figures))) {
    return [[name + trans.__('never used'), '']]; // as on the other GPUs of a TensorFlow without a policy
  }
  // eslint-disable-next-line jupyter/no-dynamic-translation -- frameworks name their figures; a catalogue may have them
  return all.map(([what, size], index) => [(index ? '' : name) + trans.__(what), small(size, unit)]);
}

/** A figure in the unit that stands above; what is too small for that has one of its own. */
function small(size: number, unit: Unit): string {
  const text = figure(size, unit);
  return text.startsWith('<') ? withUnit(size, 'MiB') : text;
}
