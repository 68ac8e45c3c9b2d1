// Translates the sentences of server and kernel; live tables use it through the page's stream and need no templates of
// their own.

import { ENGLISH, type Translation } from '../view/format';
import { templates } from './templates';

/** The templates, with how many fields each has. */
const KNOWN = new Map(templates(ENGLISH).map(template => [template, new Set(template.match(/%\d/g)).size]));

/** A language that says the sentences of server and kernel, too. */
export function saying<Language extends Translation>(trans: Language): Language {
  const said = (words: unknown): string | undefined => {
    const [template, ...fields] = Array.isArray(words) ? (words as unknown[]) : [];
    if (typeof template !== 'string' || KNOWN.get(template) !== fields.length) {
      return undefined;
    }
    const texts = fields.map(field => (typeof field === 'string' ? field : said(field)));
    const places = fields.map((_, index) => `%${index + 1}`); // are filled here: JupyterLab makes `%% ` of a name a `%`
    // eslint-disable-next-line jupyter/no-dynamic-translation -- `templates.ts` has each as JupyterLab's extractor wants it
    return texts.includes(undefined) ? undefined : ENGLISH.__(trans.__(template, ...places), ...texts);
  };
  return Object.assign(Object.create(trans) as Language, { said }); // JupyterLab gives one English to all
}
