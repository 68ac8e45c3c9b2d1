// What was used of each GPU in the last ten minutes: a bounded record, and its line. Pure but for `append` and `fill`.

import type { Past, State } from './wire';

/** Seconds that are kept and drawn. */
export const SPAN = 600;

/** Points at most, however often they come. */
const MOST = 1200;

/** The part of a GPU from which on there is a line. */
const LEAST = 0.02;

/** Points at most in a line: more than a panel's pixels show nothing new. */
const DRAWN = 240;

/** Seconds in which a line moves by a point: drawing it more often shows nothing new either. */
const STEP = SPAN / DRAWN;

export class History {
  /** Replace everything, as a full message does. */
  fill(past: Past): void {
    this.times = [...past.times];
    this.used = new Map(Object.entries(past.used).map(([key, values]) => [key, [...values]]));
    this.fills += 1;
    this.trim();
  }

  /** Add a state's figures, if its time is new. After a clock was set back, later points are dropped. */
  append(state: State): void {
    const last = this.times[this.times.length - 1];
    if (!state.time || (last !== undefined && state.time <= last && last - state.time < BACK)) {
      return;
    }
    this.forget(state.time);
    const before = this.times.length;
    this.times.push(state.time);
    for (const label of Object.keys(state.gpus)) {
      const gpu = state.gpus[label]!;
      const key = gpu.uuid ?? label;
      let values = this.used.get(key);
      if (!values) {
        values = [];
        this.used.set(key, values);
      }
      while (values.length < before) {
        values.push(null);
      }
      values[before] = gpu.used ?? null;
    }
    this.trim();
  }

  /**
   * Return a number that changes as often as a drawing of the line shows something new.
   *
   * @param part - from 0 to 1: lines with different parts are drawn again at different times.
   */
  edition(part: number): string {
    const end = this.times[this.times.length - 1] ?? 0;
    return `${this.fills} ${Math.floor(end / STEP + part)}`;
  }

  /**
   * Draw a GPU's line as an SVG path in a box.
   *
   * @param key - the GPU's uuid, or its label.
   * @param total - the value at the top of the box, in bytes.
   * @param width - the width of the box, which is ten minutes; the newest point is at its right.
   * @param height - the height of the box.
   * @returns the path; empty where the line would stay at the bottom.
   */
  path(key: string, total: number, width: number, height: number): string {
    const values = this.used.get(key);
    if (!values || total <= 0) {
      return '';
    }
    const end = this.times[this.times.length - 1] ?? 0;
    const step = Math.max(1, Math.ceil(this.times.length / DRAWN));
    let path = '';
    let pen = false;
    let any = false;
    for (let from = 0; from < this.times.length; from += step) {
      const value = highest(values, from, Math.min(from + step, this.times.length));
      if (value === null) {
        pen = false;
        continue;
      }
      any ||= value > LEAST * total;
      const x = width * (1 - (end - this.times[from]!) / SPAN);
      const y = 1 + (height - 2) * (1 - Math.min(1, value / total));
      path += `${pen ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = true;
    }
    return any ? path : '';
  }

  /** The most that was used of a GPU; undefined where nothing is known. */
  most(key: string): number | undefined {
    return highest(this.used.get(key) ?? [], 0, this.times.length) ?? undefined;
  }

  /** Drop the points from a time on. */
  private forget(time: number): void {
    let count = this.times.length;
    while (count && this.times[count - 1]! >= time) {
      count -= 1;
    }
    if (count < this.times.length) {
      this.times.length = count;
      this.used.forEach(values => values.splice(count));
      this.fills += 1;
    }
  }

  /** Drop old and excess points, many at once, since each cut moves all others. */
  private trim(): void {
    const end = this.times[this.times.length - 1] ?? 0;
    if (this.times.length < MOST && end - (this.times[0] ?? end) < SPAN + SLACK) {
      return;
    }
    let cut = Math.max(0, this.times.length - MOST + 100);
    while (cut < this.times.length && end - this.times[cut]! > SPAN) {
      cut += 1;
    }
    this.times.splice(0, cut);
    for (const [key, values] of this.used) {
      values.splice(0, cut);
      if (values.every(value => value === null)) {
        this.used.delete(key);
      }
    }
  }

  private fills = 0;
  times: number[] = [];
  used = new Map<string, (number | null)[]>();
}

/** Seconds by which a state may be older than the record without the clock having been set back. */
const BACK = 2;

/** Seconds by which the record may be too long before it is cut. */
const SLACK = 30;

function highest(values: (number | null)[], from: number, to: number): number | null {
  let most: number | null = null;
  for (let index = from; index < to; index += 1) {
    const value = values[index];
    if (value !== null && value !== undefined && (most === null || value > most)) {
      most = value;
    }
  }
  return most;
}
