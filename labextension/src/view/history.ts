// The use of each GPU in the last ten minutes and in the last hour: bounded records, and their lines.
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

/** What is recorded of a GPU: the bytes that are used, and in percent, for how much of the time it computes. */
export type What = 'used' | 'utilisation';

/** A known time, and the figures then; null where they were not known. */
export type Point = { time: number } & Record<What, number | null>;

export class History {
  /** Replace everything, as a full message does. */
  fill(past: Past): void {
    this.tracks.forEach(track => track.fill(past));
  }

  /** Add a state's figures, if its time is new. After a clock was set back, later points are dropped. */
  append(state: State): void {
    this.tracks.forEach(track => track.append(state));
  }

  /** The record of a span. */
  of(span: Span): Track {
    return this.tracks.find(track => track.span === span)!;
  }

  private tracks = SPANS.map(span => new Track(span));
}

/** The record of one span. */
export class Track {
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
    const series = (all: Past['used'] = {}): Series =>
      new Map(Object.entries(all).map(([key, values]) => [key, chosen.map(index => values[index] ?? null)]));
    this.times = chosen.map(index => past.times[index]!);
    this.series = { used: series(past.used), utilisation: series(past.utilisation) };
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
    for (const [label, { uuid, used, sensors }] of Object.entries(state.gpus)) {
      this.add(this.series.used, uuid ?? label, before, used);
      this.add(this.series.utilisation, uuid ?? label, before, sensors?.['utilisation']);
    }
    this.trim();
  }

  private add(series: Series, key: string, index: number, value: number | undefined): void {
    const values = series.get(key) ?? [];
    series.set(key, values);
    while (values.length < index) {
      values.push(null);
    }
    values[index] = value ?? null;
  }

  /**
   * Return a text that changes as often as a drawing of the lines shows something new.
   *
   * @param part - from 0 to 1: lines with different parts are drawn again at different times.
   */
  edition(part: number): string {
    return `${this.fills} ${Math.floor(this.end / this.step + part)}`;
  }

  /**
   * Draw a GPU's line as an SVG path in a box.
   *
   * @param key - the GPU's uuid, or its label.
   * @param total - the value at the top of the box: bytes, or percent.
   * @param width - the width of the box, which is the whole span; the newest point is at its right.
   * @param height - the height of the box.
   * @returns the path; empty where nothing is known, or the line of what is used would stay at the bottom.
   */
  path(what: What, key: string, total: number, width: number, height: number): string {
    const values = this.series[what].get(key);
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
      any ||= what === 'utilisation' || value > LEAST * total;
      const x = width * (1 - (this.end - this.times[from]!) / this.span);
      const y = 1 + (height - 2) * (1 - Math.min(1, value / total));
      path += `${pen ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = true;
    }
    return any ? path : '';
  }

  /** The highest figure of a GPU; undefined where nothing is known. */
  most(what: What, key: string): number | undefined {
    return highest(this.series[what].get(key) ?? [], 0, this.times.length) ?? undefined;
  }

  /**
   * Return the figures of a GPU at a place of its line.
   *
   * @param place - from 0, at the left, to 1, which is now.
   * @returns the nearest point; null where there is none near.
   */
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
    const { used, utilisation } = this.series;
    return { time, used: used.get(key)?.[index] ?? null, utilisation: utilisation.get(key)?.[index] ?? null };
  }

  private get all(): Series[] {
    return Object.values(this.series);
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
      this.all.forEach(series => series.forEach(values => values.splice(count)));
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
    for (const series of this.all) {
      for (const [key, values] of series) {
        values.splice(0, cut);
        if (values.every(value => value === null)) {
          series.delete(key);
        }
      }
    }
  }

  /** Seconds in which a line moves by a point: drawing it more often shows nothing new either. */
  private step: number;
  private fills = 0;
  times: number[] = [];
  series: Record<What, Series> = { used: new Map(), utilisation: new Map() };
}

type Series = Map<string, (number | null)[]>;

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
