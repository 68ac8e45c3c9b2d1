// Puts what server and kernel say in the page's language: their English comes with the words that it was made of.

import { ENGLISH, type Translation } from './format';
import { templates } from './templates';

/** A template, in which `%1` is the first of the fields that follow: texts, which may be hostile, or sentences. */
export type Words = (string | Words)[];

/** The templates, with how many fields each has. */
const KNOWN = new Map(templates(ENGLISH).map(template => [template, new Set(template.match(/%\d/g)).size]));

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
      part[name] = sentence(words, trans) ?? text;
    } else if (Array.isArray(text) && Array.isArray(words)) {
      part[name] = text.map((line: unknown, index) => sentence(words[index], trans) ?? line);
    }
  }
  for (const [name, inner] of Object.entries(part)) {
    if (typeof inner === 'object' && name !== member) {
      worded(inner, trans, member);
    }
  }
  return message;
}

/** The sentence that has these words; undefined where this page does not know all of it. */
export function sentence(words: unknown, trans: Translation): string | undefined {
  const [template, ...fields] = Array.isArray(words) ? (words as unknown[]) : [];
  if (typeof template !== 'string' || KNOWN.get(template) !== fields.length) {
    return undefined;
  }
  const texts = fields.map(field => (typeof field === 'string' ? field : sentence(field, trans)));
  const places = fields.map((_, index) => `%${index + 1}`); // are filled here: JupyterLab makes `%% ` of a name a `%`
  // eslint-disable-next-line jupyter/no-dynamic-translation -- `templates.ts` has each as JupyterLab's extractor wants it
  return texts.includes(undefined) ? undefined : ENGLISH.__(trans.__(template, ...places), ...texts);
}
