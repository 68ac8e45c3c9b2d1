// Formats figures and names for people, as `ground/phrases.py` does for the tables that a cell shows, and their words: in
// JupyterLab's language, or in English. Pure.

export type Unit = 'GiB' | 'GB' | 'MiB';

const SIZES: Record<Unit, number> = { GiB: 2 ** 30, GB: 1e9, MiB: 2 ** 20 };

/** The text for an unknown figure. */
export const UNKNOWN = 'N/A';

/** A size without its unit: `48.0`, `<0.1`, `N/A`. */
export function figure(size: number | undefined, unit: Unit): string {
  if (size === undefined) {
    return UNKNOWN;
  }
  const digits = unit === 'MiB' ? 0 : 1;
  const value = size / SIZES[unit];
  const least = 10 ** -digits;
  if (value > 0 && value < least / 2) {
    return `<${least}`;
  }
  // Python rounds a tie to the even digit, `toFixed` up; those that end in 0.75 agree.
  return (digits === 1 && value % 1 === 0.25 ? value - 0.05 : value).toFixed(digits);
}

/** A size with its unit: `48.0 GiB`; `N/A` without. */
export function withUnit(size: number | undefined, unit: Unit): string {
  return size === undefined ? UNKNOWN : `${figure(size, unit)} ${unit}`;
}

/** What is used of the total: `61.2 / 80 GiB`. */
export function share(used: number | undefined, total: number | undefined, unit: Unit): string {
  return `${figure(used, unit)} / ${figure(total, unit).replace(/\.0$/, '')} ${unit}`;
}

/** How long ago, in one unit: `now`, `5 min`, `2 h`, `3 d`. */
export function ago(seconds: number, trans: Translation): string {
  if (seconds < 60) {
    return '';
  }
  if (seconds < 3600) {
    return trans.__('%1 min', Math.floor(seconds / 60));
  }
  if (seconds < 2 * 86400) {
    return trans.__('%1 h', Math.floor(seconds / 3600));
  }
  return trans.__('%1 d', Math.floor(seconds / 86400));
}

/** How long something took: `3.2 s`, `2 min`. */
export function length(seconds: number, trans: Translation): string {
  return ago(seconds, trans) || trans.__('%1 s', seconds.toFixed(1));
}

/** A number that is another one whenever `ago` says something new; it takes less than to say it. */
export function step(seconds: number): number {
  return seconds < 60 ? 0 : Math.floor(seconds < 3600 ? seconds / 60 : 60 + seconds / 3600);
}

/** A time of the day in the user's format: `14:02:31`; with its date where it is of another day. */
export function clock(time: number, now = Date.now() / 1000): string {
  const date = new Date(time * 1000);
  const text = date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
  const today = new Date(now * 1000).toDateString() === date.toDateString();
  return today ? text : `${date.toLocaleDateString()} ${text}`;
}

/** Text cut in its middle: names differ at their start and at their end. */
export function cut(text: string, most: number): string {
  if (text.length <= most) {
    return text;
  }
  const half = Math.floor((most - 1) / 2);
  return `${whole(text.slice(0, half))}…${whole(text.slice(-half))}`;
}

/** Drop the half of a character that a cut left. */
function whole(text: string): string {
  return text.replace(/[\uD800-\uDBFF]$|^[\uDC00-\uDFFF]/, '');
}

/** A notebook's short name: its file's name without the extension. */
export function short(owner: string): string {
  return owner.replace(/^.*\//, '').replace(/\.ipynb$/, '');
}

/** The two functions of JupyterLab's TranslationBundle that are used. */
export interface Translation {
  /** Translate; `%1` and so on are replaced by the arguments. */
  __(text: string, ...args: unknown[]): string;
  /** Translate by a number, which is `%1`. */
  _n(one: string, many: string, count: number, ...args: unknown[]): string;
}

/** English, where there is no translation. */
export const ENGLISH: Translation = {
  __: fill,
  _n: (one, many, count, ...args) => fill(count === 1 ? one : many, count, ...args)
};

function fill(text: string, ...args: unknown[]): string {
  return text.replace(/%(\d)/g, (whole, place: string) => (args.length >= +place ? String(args[+place - 1]) : whole));
}
