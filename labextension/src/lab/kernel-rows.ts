// The rows of this server's kernels: which are whose, what each kernel holds, and since when without use. Pure.

import { ago, type Translation, type Unit } from '../view/format';
import { own } from '../view/model';
import { beside, heldText, parkedText, stateText, waitTexts } from '../view/row';
import type { Store } from '../view/store';
import type { Row, State } from '../view/wire';
import type { IGpuMemory } from './tokens';

/** A notebook that holds memory and uses none of it. */
export interface Held {
  /** The row of its kernel; on the GPU where that holds most. */
  row: Row;
  /** Bytes, on all GPUs, with what the kernel has started. */
  held: number;
  /** Since when it has used none of them. */
  since: number;
}

/** The notebooks of this server that hold memory and use none of it, with all that their kernels have started. */
export function unused(state: State): Held[] {
  return [...byKernel(Object.values(state.rows).filter(own)).values()].flatMap(rows => {
    const main = rows.filter(row => !row.child).sort((a, b) => (b.held ?? 0) - (a.held ?? 0))[0];
    const latest = Math.max(...rows.map(row => row.unused ?? Infinity));
    return main && Number.isFinite(latest)
      ? [{ row: main, held: rows.reduce((sum, row) => sum + (row.held ?? 0), 0), since: latest }]
      : [];
  });
}

/** The rows of kernels, by kernel. */
function byKernel(rows: readonly Row[]): Map<string, Row[]> {
  const kernels = new Map<string, Row[]>();
  for (const row of rows) {
    const { kernel } = row;
    if (kernel !== undefined) {
      const its = kernels.get(kernel);
      its ? its.push(row) : kernels.set(kernel, [row]);
    }
  }
  return kernels;
}

/** What a kernel holds in words: `9.8 GiB`, `9.8 GiB, idle 8 h, unused 2 h`, or as `parkedText`. */
export interface KernelMemory {
  row: Row;
  text: string;
}

/** What such a one is, says, and does: with anything of it changed, it is another one. */
export function identity({ row, text }: KernelMemory): string {
  return [row.owner, row.path, row.kernel, text].join(' ');
}

/** The kernels of this server that hold GPU memory. */
export function kernels(state: State, unit: Unit, trans: Translation): KernelMemory[] {
  const since = new Map(unused(state).map(one => [one.row.kernel, one.since]));
  return [...byKernel(Object.values(state.rows))].map(([kernel, its]) => {
    const held = its.reduce((sum, row) => sum + (row.held ?? 0), 0);
    const main = its.find(row => !row.child) ?? its[0]!;
    const waits = its.find(row => row.waits !== undefined) ?? main;
    const unused = since.get(kernel);
    const parts = [
      waitTexts(waits, unit, trans).join(' '),
      its.some(row => row.parked?.size) ? parkedText(its, unit, trans) : heldText({ ...waits, held }, unit),
      unused !== undefined && beside({ ...main, unused }) ? stateText({ ...main, unused }, state.time, trans) : '',
      unused === undefined ? '' : trans.__('unused %1', ago(state.time - unused, trans))
    ];
    return { row: main, text: parts.filter(Boolean).join(', ') };
  });
}

/** A kernel's row as it is now; undefined where it holds nothing. */
export function kernelRow(store: Pick<Store, 'state'>, kernel: string): Row | undefined {
  return Object.values(store.state?.rows ?? {}).find(row => row.kernel === kernel && !row.child);
}

/** A kernel's row; one that holds nothing has none, and is given one with the other documents on it. */
export function rowOf({ app, stream }: Pick<IGpuMemory, 'app' | 'stream'>, kernel: string, path: string): Row {
  const there = kernelRow(stream, kernel);
  const also = [...app.serviceManager.sessions.running()]
    .filter(session => session.kernel?.id === kernel && session.path !== path)
    .map(session => session.name || session.path);
  return there ?? { gpu: '', who: 'mine', owner: path, kernel, ...(also.length ? { also } : {}) };
}
