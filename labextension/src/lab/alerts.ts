// Decides what is worth a notification, and words it: a GPU that fills up, a notebook that holds memory without use. Pure.

import { ago, cut, withUnit, type Translation, type Unit } from '../view/format';
import type { State } from '../view/wire';
import { taken } from '../view/model';
import { unused, type Held } from './kernel-rows';

/** Percentage points that a GPU must fall below the threshold before it can fill up again. */
const BACK = 5;

/**
 * Tells once of a GPU that fills up, until it has emptied again; not if it was full at the first look, and only where
 * something can be done: an idle notebook of this server holds memory there.
 */
export class Alarm {
  /**
   * Return the labels of the GPUs that have just passed a threshold.
   *
   * @param percent - the threshold; 0 for never.
   */
  check(state: State, percent: number): string[] {
    return Object.entries(state.gpus).flatMap(([label, gpu]) => {
      const [used, total] = [taken(gpu), gpu.total];
      if (used === undefined || !total) {
        return [];
      }
      const now = (100 * used) / total;
      const before = this.last.get(label) ?? Infinity;
      const news = before < percent && now >= percent && !this.full.has(label);
      if (news && !gives(state, label)) {
        return []; // it is told once a notebook there is idle
      }
      this.last.set(label, now);
      if (now >= percent) {
        this.full.add(label);
      } else if (now < percent - BACK) {
        this.full.delete(label);
      }
      return news ? [label] : [];
    });
  }

  private full = new Set<string>();
  private last = new Map<string, number>();
}

/** Bytes from which on it is worth a word. */
const LEAST = 2 ** 28;

/** What is remembered of kernels beyond the page: since when one was told to be unused, or the day to say no more. */
type Memory = Record<string, number | string>;

/** The part of a page's storage that is used. */
export type Keeper = Pick<Storage, 'getItem' | 'setItem'>;

const KEY = 'tfgpu-magic:unused';

/** Kernels that are remembered: of all servers of this origin. */
const MOST = 200;

/** Seconds by which the time since when is the same in two states. */
const SAME = 5;

/** Tells once of a notebook that has long held memory without use, until it uses it again. */
export class Reminder {
  /** @param keeper - is shared by the pages of a browser, so that only one of them tells. */
  constructor(private keeper: Keeper) {}

  /**
   * Return the notebooks of which the user is to be told now.
   *
   * @param hours - for how long memory must have been held without use; 0 for never.
   */
  check(state: State, hours: number): Held[] {
    const memory = this.memory();
    const news = unused(state).filter(({ row, since, held }) => {
      const told = memory[row.kernel!];
      const known = typeof told === 'number' ? Math.abs(told - since) <= SAME : told === day(state.time);
      return row.state !== 'busy' && held >= LEAST && hours > 0 && state.time - since >= 3600 * hours && !known;
    });
    if (news.length) {
      this.keep(memory, Object.fromEntries(news.map(({ row, since }) => [row.kernel!, since])));
    }
    return news;
  }

  /** Say no more of kernels on this day; on the next they count as ones that were not told. */
  notToday(kernels: readonly string[], now: number): void {
    this.keep(this.memory(), Object.fromEntries(kernels.map(kernel => [kernel, day(now)])));
  }

  private memory(): Memory {
    try {
      return this.own ?? { ...(JSON.parse(this.keeper.getItem(KEY) ?? '') as Memory) };
    } catch {
      return {};
    }
  }

  private keep(before: Memory, news: Memory): void {
    const older = Object.entries(before).filter(([kernel]) => !(kernel in news));
    const memory = Object.fromEntries([...older, ...Object.entries(news)].slice(-MOST));
    try {
      this.keeper.setItem(KEY, JSON.stringify(memory));
    } catch {
      this.own = memory; // where the browser keeps nothing, only another page tells again
    }
  }

  private own: Memory | null = null;
}

/** What the server tells of a notebook: bytes, and seconds. */
export interface Idle {
  kernel: string;
  pid: number;
  name: string;
  path: string;
  held: number | null;
  idle: number;
  /** Since when its owner is told; null where there is nothing to tell. */
  told: number | null;
  due: { park?: number; stop?: number };
  /** How much is left of *Not Today*. */
  rests: number;
  /** Whether that was said. */
  put_off: boolean;
}

/** What the server tells: idle notebooks. */
export interface Told {
  notebooks: Idle[];
}

/** Characters of a name: JupyterLab shows 140 of a notification. */
const CUT = 30;

/** What is said of a notebook. */
export function sentence({ name, held, idle, due }: Idle, unit: Unit, trans: Translation): string {
  const what = [cut(name, CUT), withUnit(held ?? undefined, unit), ago(idle, trans) || trans.__('a minute')];
  const says = trans.__('%1 has held %2 for %3 without using it.', ...what);
  const [park, stop] = [due.park, due.stop].map(
    time => time !== undefined && (ago(time, trans) || trans.__('a minute'))
  );
  if (park && stop) {
    return trans.__('%1 It will be parked in %2, and shut down in %3', says, park, stop);
  }
  if (park) {
    return trans.__('%1 It will be parked in %2', says, park);
  }
  return stop ? trans.__('%1 It will be shut down in %2', says, stop) : says;
}

/** Whether a notebook of this server that has been idle for a minute holds memory of a GPU that is worth a word. */
function gives({ rows, time }: State, label: string): boolean {
  return Object.values(rows).some(
    ({ gpu, kernel, state, active = 0, held = 0 }) =>
      gpu === label && kernel !== undefined && state !== 'busy' && time - active >= 60 && held >= LEAST
  );
}

function day(time: number): string {
  return new Date(time * 1000).toDateString();
}
