// A choice made by hand, the words of the magic for it, and the sizes that its slider offers. Pure.

import type { Gpu } from '../kernel';

/** The line that says words: to every framework, where each can be asked them. */
export function line(text: string): string {
  return `${/\bsplit\b/.test(text) ? '%tf_gpu' : '%gpu'} ${text}`;
}

export const LOAD = '%load_ext tfgpu_magic';

/** In place of a GPU's label: all GPUs, and the one with most free memory. */
export const ALL = 'all';
export const PICK = 'pick';

/** How memory is taken: as it is needed, up to a limit, or all that is free, as without a policy. */
export type Memory = 'growth' | 'limit' | 'everything';

export type Unit = 'GiB' | '%';

export interface Choice {
  /** A GPU's label, `ALL` or `PICK`. */
  gpu: string;
  memory: Memory;
  amount: number;
  unit: Unit;
  /** Whether the limit is a cap that memory grows into. */
  grow: boolean;
  /** Whether growth gives back what is not in use. */
  release: boolean;
}

/** What is asked in the kernel already. */
export interface Asked {
  policy: string;
  /** Whether that chooses GPUs. */
  chooses: boolean;
}

/** Return the words that ask for a choice, whatever was asked before. */
export function words(choice: Choice, asked: Asked): string {
  const { gpu, memory, amount, unit, grow, release } = choice;
  const size = `${amount}${unit}`;
  const drops = memory === 'everything' && asked.policy !== '';
  const parts = drops ? ['default'] : [];
  if (gpu === PICK) {
    parts.push('pick');
  } else if (gpu !== ALL) {
    parts.push(`visible ${gpu}`);
  } else if (asked.chooses && !drops) {
    parts.push('visible all');
  }
  if (memory === 'growth') {
    parts.push(`growth${release ? ' --release' : ''}`);
  } else if (memory === 'limit') {
    parts.push(`limit ${size}${grow ? ' --grow' : ''}`);
  }
  return parts.join('; ') || 'default';
}

const PART =
  /^(?:(?<default>default)|(?<all>visible all)|visible (?<gpu>\d+(?:\.\d+)?)|(?<pick>pick)(?: --need (?:\d+(?:\.\d+)?)(?:GiB|%))?|(?<growth>growth)(?<release> --release)?|limit (?<amount>\d+(?:\.\d+)?)(?<unit>GiB|%)(?<grow> --grow)?)$/;

/** Return the choice that words ask for; null where it is none that can be made by hand. */
export function read(text: string, usual: Choice): Choice | null {
  const choice: Choice = { ...usual, gpu: ALL, memory: 'everything', grow: false, release: false };
  for (const part of text ? text.split('; ') : []) {
    const found = PART.exec(part)?.groups;
    if (!found) {
      return null;
    }
    if (found['gpu'] ?? found['pick'] ?? found['all']) {
      choice.gpu = found['gpu'] ?? (found['pick'] ? PICK : ALL);
    } else if (found['growth']) {
      Object.assign(choice, { memory: 'growth', release: !!found['release'] });
    } else if (found['amount']) {
      Object.assign(choice, { memory: 'limit', amount: +found['amount'], unit: found['unit'], grow: !!found['grow'] });
    }
  }
  return choice;
}

/** The cell that asks for it in a notebook that is run anew. */
export function cell(text: string): string {
  return `${LOAD}\n${line(text)}`;
}

/** Whether a cell is one that `cell` made, so that another choice takes its place. */
export function isCell(source: string): boolean {
  const [first, second, ...rest] = source.trim().split('\n');
  return first === LOAD && /^%(tf_)?gpu /.test(second ?? '') && !rest.length;
}

const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** The GPU whose figures a choice is measured by: of several the one where least fits; of a pick, where most does. */
export function measure(gpus: readonly Gpu[], gpu: string): Gpu | null {
  const known = gpus.filter(one => one.total !== undefined);
  if (gpu === ALL) {
    return least(known, one => one.fits ?? one.total!);
  }
  return gpu === PICK
    ? least(known, one => -(one.fits ?? one.free ?? 0))
    : (known.find(one => one.label === gpu) ?? null);
}

function least(gpus: readonly Gpu[], size: (gpu: Gpu) => number): Gpu | null {
  return gpus.reduce<Gpu | null>((best, one) => (best && size(best) <= size(one) ? best : one), null);
}

/** The most that can be asked of a GPU, in a unit: what fits, under the ceiling; where nothing fits, what there is. */
export function most(gpu: Gpu | null, unit: Unit): number {
  return Math.min(highest(gpu, unit), fitting(gpu, unit) || Infinity);
}

/** What bounds an amount: the ceiling, or what fits; null where it is the GPU itself. */
export function bound(gpu: Gpu | null, unit: Unit): 'ceiling' | 'fits' | null {
  const top = most(gpu, unit);
  return gpu?.most !== undefined && top === highest(gpu, unit) ? 'ceiling' : top === fitting(gpu, unit) ? 'fits' : null;
}

/** The largest limit that fits; 0 where none does, or that is not known. */
function fitting(gpu: Gpu | null, unit: Unit): number {
  return gpu?.fits === undefined ? 0 : steps(gpu.fits, gpu, unit);
}

/** The most that a ceiling leaves: it is whole MiB, which may be a little less than the amount that it was said with. */
function highest(gpu: Gpu | null, unit: Unit): number {
  return gpu ? steps((gpu.most ?? gpu.total!) + MIB, gpu, unit) : 100;
}

/** A size in whole steps of a unit. */
function steps(size: number, gpu: Gpu, unit: Unit): number {
  return unit === '%' ? Math.min(100, Math.floor((100 * size) / gpu.total!)) : Math.floor((10 * size) / GIB) / 10;
}

/** The step of the amounts in a unit. */
export const STEP: Record<Unit, number> = { GiB: 0.1, '%': 1 };

/** Return an amount that can be asked: in steps, and no more than there is. */
export function allowed(amount: number, unit: Unit, gpu: Gpu | null): number {
  const digits = unit === 'GiB' ? 1 : 0;
  return +Math.min(Math.max(amount, STEP[unit]), most(gpu, unit)).toFixed(digits);
}

/** Return a choice with its amount in another unit. */
export function converted(choice: Choice, unit: Unit, gpu: Gpu | null): Choice {
  if (unit === choice.unit || !gpu) {
    return { ...choice, unit };
  }
  const whole = gpu.total! / GIB;
  const amount = unit === '%' ? (choice.amount / whole) * 100 : (choice.amount / 100) * whole;
  return { ...choice, unit, amount: allowed(amount, unit, gpu) };
}

/** The bytes of a choice's amount on a GPU. */
export function bytes({ amount, unit }: Choice, gpu: Gpu): number {
  return unit === 'GiB' ? amount * GIB : (amount / 100) * gpu.total!;
}
