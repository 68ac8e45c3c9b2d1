// What was used of each GPU in the last ten minutes and in the last hour: bounded records, and their lines.
// Pure but for `append` and `fill`.

import type { Past, State } from './wire';

/** What can be drawn: ten minutes or an hour, in seconds. */
export type Span = 600 | 3600;
export const SPANS: readonly Span[] = [600, 3600];

/** Points at most in ten minutes, however often they come, and in an hour, of which there is one each ten seconds. */
const MOST: Record<Span, number> = { 600: 1200, 3600: 600 };
const EVERY: Record<Span, number> = { 600: 0, 3600: 9.5 };

/** The part of a GPU from which on there is a line. */
const LEAST = 0.02;

/** Points at most in a line: more than a panel's pixels show nothing new. */
const DRAWN = 240;

/** A known time. */
export interface Point {
  time: number;
  /** Bytes; null where they were not known. */
  used: number | null;
}

export class History {
  /** Replace everything, as a full message does. */
  fill(past: Past): void {
    this.tracks.forEach(track => track.fill(past));
  }

  /** Add a state's figures, if its time is new. After a clock was set back, later points are dropped. */
  append(state: State): void {
    this.tracks.forEach(track => track.append(state));
  }

  /**
   * Return a number that changes as often as a drawing of the line shows something new.
   *
   * @param part - from 0 to 1: lines with different parts are drawn again at different times.
   */
  edition(part: number, span: Span = 600): string {
    return this.track(span).edition(part);
  }

  /**
   * Draw a GPU's line as an SVG path in a box.
   *
   * @param key - the GPU's uuid, or its label.
   * @param total - the value at the top of the box, in bytes.
   * @param width - the width of the box, which is the whole span; the newest point is at its right.
   * @param height - the height of the box.
   * @returns the path; empty where the line would stay at the bottom.
   */
  path(key: string, total: number, width: number, height: number, span: Span = 600): string {
    return this.track(span).path(key, total, width, height);
  }

  /** The most that was used of a GPU; undefined where nothing is known. */
  most(key: string, span: Span = 600): number | undefined {
    return this.track(span).most(key);
  }

  /**
   * Return what was used of a GPU at a place of its line.
   *
   * @param place - from 0, at the left, to 1, which is now.
   * @returns the nearest point; null where there is none near.
   */
  at(key: string, place: number, span: Span = 600): Point | null {
    return this.track(span).at(key, place);
  }

  /** The times of the last ten minutes, and what was used then. */
  get times(): readonly number[] {
    return this.track(600).times;
  }

  get used(): ReadonlyMap<string, readonly (number | null)[]> {
    return this.track(600).used;
  }

  private track(span: Span): Track {
    return this.tracks.find(track => track.span === span)!;
  }

  private tracks = SPANS.map(span => new Track(span));
}

/** The record of one span. */
class Track {
  constructor(readonly span: Span) {
    this.step = span / DRAWN;
  }

  fill(past: Past): void {
    const every = EVERY[this.span];
    let last = -Infinity;
    const chosen = past.times.flatMap((time, index) => {
      const far = time - last >= every;
      last = far ? time : last;
      return far ? [index] : [];
    });
    this.times = chosen.map(index => past.times[index]!);
    this.used = new Map(
      Object.entries(past.used).map(([key, values]) => [key, chosen.map(index => values[index] ?? null)])
    );
    this.fills += 1;
    this.trim();
  }

  append(state: State): void {
    const last = this.times[this.times.length - 1];
    if (!state.time || (last !== undefined && state.time <= last && last - state.time < BACK)) {
      return;
    }
    if (last !== undefined && state.time > last && state.time - last < EVERY[this.span]) {
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

  edition(part: number): string {
    return `${this.fills} ${Math.floor(this.end / this.step + part)}`;
  }

  path(key: string, total: number, width: number, height: number): string {
    const values = this.used.get(key);
    if (!values || total <= 0) {
      return '';
    }
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
      const x = width * (1 - (this.end - this.times[from]!) / this.span);
      const y = 1 + (height - 2) * (1 - Math.min(1, value / total));
      path += `${pen ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = true;
    }
    return any ? path : '';
  }

  most(key: string): number | undefined {
    return highest(this.used.get(key) ?? [], 0, this.times.length) ?? undefined;
  }

  at(key: string, place: number): Point | null {
    const wanted = this.end - this.span * (1 - place);
    let low = 0;
    let high = this.times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      this.times[middle]! < wanted ? (low = middle + 1) : (high = middle);
    }
    const after = this.times[low];
    const before = this.times[low - 1];
    const index = after !== undefined && (before === undefined || after - wanted < wanted - before) ? low : low - 1;
    const time = this.times[index];
    if (time === undefined || Math.abs(time - wanted) > NEAR * this.step) {
      return null;
    }
    return { time, used: this.used.get(key)?.[index] ?? null };
  }

  /** The time of the newest point. */
  private get end(): number {
    return this.times[this.times.length - 1] ?? 0;
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
    const most = MOST[this.span];
    if (this.times.length < most && this.end - (this.times[0] ?? this.end) < this.span + SLACK) {
      return;
    }
    let cut = Math.max(0, this.times.length - most + 100);
    while (cut < this.times.length && this.end - this.times[cut]! > this.span) {
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

  /** Seconds in which a line moves by a point: drawing it more often shows nothing new either. */
  private step: number;
  private fills = 0;
  times: number[] = [];
  used = new Map<string, (number | null)[]>();
}

/** Seconds by which a state may be older than the record without the clock having been set back. */
const BACK = 2;

/** Seconds by which the record may be too long before it is cut. */
const SLACK = 30;

/** Points of a line by which a place may be away from a known time. */
const NEAR = 4;

function highest(values: readonly (number | null)[], from: number, to: number): number | null {
  let most: number | null = null;
  for (let index = from; index < to; index += 1) {
    const value = values[index];
    if (value !== null && value !== undefined && (most === null || value > most)) {
      most = value;
    }
  }
  return most;
}
