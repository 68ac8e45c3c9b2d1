// The sizes that the slider of a limit offers, in bytes and in percent. Pure.

import type { Gpu } from './kernel';
import { ALL, PICK, type Choice, type Unit } from './words';

const GIB = 2 ** 30;

/** The GPU whose figures a choice is measured by: of several the smallest; of a pick the one with most free memory. */
export function measure(gpus: readonly Gpu[], gpu: string): Gpu | null {
  const known = gpus.filter(one => one.total !== undefined);
  if (gpu === ALL) {
    return least(known, one => one.total!);
  }
  return gpu === PICK ? least(known, one => -(one.free ?? 0)) : (known.find(one => one.label === gpu) ?? null);
}

function least(gpus: readonly Gpu[], size: (gpu: Gpu) => number): Gpu | null {
  return gpus.reduce<Gpu | null>((best, one) => (best && size(best) <= size(one) ? best : one), null);
}

/** The most that can be asked of a GPU, in a unit; an amount is never less than `step`. */
export function most(gpu: Gpu | null, unit: Unit): number {
  return unit === '%' || !gpu ? 100 : Math.floor((gpu.total! / GIB) * 10) / 10;
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
