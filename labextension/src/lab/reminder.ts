// Notices which of the user's notebooks have long held memory without using the GPU: once, until they use it again.

import type { Row, State } from '../view/wire';

/** Bytes from which on it is worth a word. */
const LEAST = 2 ** 28;

/** A notebook of which the user is told. */
export interface Held {
  /** The row of its kernel; on the GPU where that holds most. */
  row: Row;
  /** Bytes, on all GPUs, with what the kernel has started. */
  held: number;
  /** Since when it has used none of them. */
  since: number;
}

/** What is remembered beyond the page: kernels of which the user wants to hear no more on a day, and what was told. */
interface Memory {
  day: string;
  quiet: string[];
  told: Record<string, number>;
}

/** The part of a page's storage that is used. */
export type Keeper = Pick<Storage, 'getItem' | 'setItem'>;

const KEY = 'tfgpu-magic:unused';

/** Kernels that are remembered: of all servers of this origin. */
const MOST = 200;

export class Reminder {
  /** @param keeper - is shared by the pages of a browser, so that only one of them tells. */
  constructor(private keeper: Keeper) {}

  /**
   * Return the notebooks of which the user is to be told now.
   *
   * @param hours - for how long memory must have been held without use; 0 for never.
   */
  check(state: State, hours: number): Held[] {
    if (!hours || state.error) {
      return [];
    }
    const memory = this.memory(state.time);
    const news = unused(state).filter(({ row, since, held }) => {
      const told = memory.told[row.kernel!];
      return (
        row.state !== 'busy' &&
        held >= LEAST &&
        state.time - since >= 3600 * hours &&
        !memory.quiet.includes(row.kernel!) &&
        (told === undefined || Math.abs(told - since) > SAME)
      );
    });
    if (news.length) {
      const fresh = new Map(news.map(({ row, since }) => [row.kernel!, since]));
      const before = Object.entries(memory.told).filter(([kernel]) => !fresh.has(kernel));
      this.keep({ ...memory, told: Object.fromEntries([...before, ...fresh].slice(-MOST)) });
    }
    return news;
  }

  /** Say no more of a kernel on this day; on the next it counts as one that was not told. */
  notToday(kernel: string, now: number): void {
    const memory = this.memory(now);
    const told = Object.entries(memory.told).filter(([other]) => other !== kernel);
    const quiet = [...memory.quiet.filter(other => other !== kernel), kernel];
    this.keep({ ...memory, quiet, told: Object.fromEntries(told) });
  }

  private memory(now: number): Memory {
    const day = new Date(now * 1000).toDateString();
    const { day: of, quiet, told } = this.own ?? this.kept();
    return { day, quiet: of === day ? quiet : [], told };
  }

  private kept(): Memory {
    try {
      const { day, quiet, told } = JSON.parse(this.keeper.getItem(KEY) ?? '') as Memory;
      return { day, quiet: [...quiet], told: { ...told } };
    } catch {
      return { day: '', quiet: [], told: {} };
    }
  }

  private keep(memory: Memory): void {
    try {
      this.keeper.setItem(KEY, JSON.stringify(memory));
      this.own = null;
    } catch {
      this.own = memory; // where the browser keeps nothing, only another page tells again
    }
  }

  private own: Memory | null = null;
}

/** Seconds by which the time since when is the same in two states. */
const SAME = 5;

/** The notebooks of this server that hold memory and use none of it, with all that their kernels have started. */
export function unused(state: State): Held[] {
  const kernels = new Map<string, Row[]>();
  for (const row of Object.values(state.rows)) {
    if (row.kernel !== undefined && (row.who === 'mine' || row.who === 'this')) {
      kernels.set(row.kernel, [...(kernels.get(row.kernel) ?? []), row]);
    }
  }
  return [...kernels.values()].flatMap(rows => {
    const own = rows.filter(row => !row.child).sort((a, b) => (b.held ?? 0) - (a.held ?? 0))[0];
    const since = rows.map(row => row.unused ?? Infinity);
    const latest = Math.max(...since);
    return own && Number.isFinite(latest)
      ? [{ row: own, held: rows.reduce((sum, row) => sum + (row.held ?? 0), 0), since: latest }]
      : [];
  });
}
