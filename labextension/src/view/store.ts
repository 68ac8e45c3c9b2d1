// The interface of a view's data, which `stream.ts` and `table.ts` implement: a state, its history and their freshness.
// With it, how a state is renewed so that its unchanged parts stay the same objects.

import type { History } from './history';
import type { State } from './wire';

/** Whether new figures come, or why not. */
export type Link =
  | { kind: 'connecting' }
  /** New figures come each so many seconds. */
  | { kind: 'live'; every?: number }
  /** They came, and will come again. */
  | { kind: 'lost' }
  /** No new ones are asked for: these are of the state's time. */
  | { kind: 'saved' }
  /** They will not come; a sentence has the reason. */
  | { kind: 'refused'; reason: string };

export interface Store {
  readonly state: State | null;
  /** The number of the message that the state came with, where states come in numbered ones. */
  readonly sequence?: number;
  readonly history: History;
  readonly link: Link;
  /** Call back at each change; returns a function that ends that. */
  subscribe(changed: () => void): () => void;
}

/** The subscribers of a store. */
export class Listeners {
  subscribe = (changed: () => void): (() => void) => {
    const entry = { changed };
    this.entries.add(entry);
    return () => void this.entries.delete(entry);
  };

  tell(): void {
    for (const entry of this.entries) {
      entry.changed();
    }
  }

  private entries = new Set<{ changed: () => void }>();
}

/**
 * Return what a patch makes of a value.
 *
 * An object that the patch leaves unchanged is returned itself, so that readers can tell by identity what changed.
 */
export function merge(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) {
    return patch;
  }
  const before = isObject(target) ? target : {};
  let after: Record<string, unknown> | null = isObject(target) ? null : {};
  for (const key of Object.keys(patch)) {
    const there = Object.hasOwn(before, key);
    if (patch[key] === null) {
      if (there) {
        after ??= { ...before };
        Reflect.deleteProperty(after, key);
      }
      continue;
    }
    const value = merge(there ? before[key] : undefined, patch[key]);
    if (!there || value !== before[key]) {
      after ??= { ...before };
      put(after, key, value);
    }
  }
  return after ?? before;
}

/**
 * Return a value in which unchanged parts are the same objects as before.
 *
 * @param after - changed in place, to an equal value: a whole state each second is too much to copy.
 */
export function reuse(before: unknown, after: unknown): unknown {
  if (before === after) {
    return before;
  }
  if (Array.isArray(before) && Array.isArray(after)) {
    return before.length === after.length && before.every((value, index) => value === after[index]) ? before : after;
  }
  if (!isObject(before) || !isObject(after)) {
    return after;
  }
  let count = 0;
  let same = true;
  for (const key in after) {
    count += 1;
    const was = Object.hasOwn(before, key) ? before[key] : undefined;
    const is = after[key];
    if (is === was) {
      continue;
    }
    const value = reuse(was, is);
    if (value !== is) {
      put(after, key, value);
    }
    same &&= value === was;
  }
  return same && count === Object.keys(before).length ? before : after;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Set an own property of an object, also one named `__proto__`. */
function put(object: Record<string, unknown>, key: string, value: unknown): void {
  if (key === '__proto__') {
    Object.defineProperty(object, key, { value, configurable: true, enumerable: true, writable: true });
  } else {
    object[key] = value;
  }
}
