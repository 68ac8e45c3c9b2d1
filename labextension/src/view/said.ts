// Puts what server and kernel say in the page's language: their English comes with the words that it was made of.

import type { Translation } from './format';

/** A template, in which `%1` is the first of the fields that follow: texts, which may be hostile, or sentences. */
export type Words = (string | Words)[];

/**
 * Word the sentences of a message and its parts, in place. In a patch, null removes a member; one that has a text has its
 * words too, if they are others.
 *
 * @param member - the member of each part that has the words of its texts, by their names.
 */
export function worded<T>(message: T, trans: Translation, member = 'said'): T {
  if (typeof message !== 'object' || message === null) {
    return message;
  }
  const part = message as Record<string, unknown>;
  for (const [name, words] of Object.entries(part[member] ?? {}) as [string, unknown][]) {
    const text = Object.hasOwn(part, name) ? part[name] : undefined;
    if (typeof text === 'string') {
      part[name] = trans.said?.(words) ?? text;
    } else if (Array.isArray(text) && Array.isArray(words)) {
      part[name] = text.map((line: unknown, index) => trans.said?.(words[index]) ?? line);
    }
  }
  for (const [name, inner] of Object.entries(part)) {
    if (typeof inner === 'object' && name !== member) {
      worded(inner, trans, member);
    }
  }
  return message;
}
