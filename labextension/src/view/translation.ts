// The two functions of JupyterLab's TranslationBundle that are used, and their stand-in in English.

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
