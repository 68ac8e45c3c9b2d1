// Writes beside each kernel in JupyterLab's own list of running kernels what it holds, and since when without use.
//
// The list takes no text of others, but names each kernel in an attribute; the style sheet shows what is written here.

import { ago, withUnit, type Unit } from '../view/format';
import type { Store } from '../view/store';
import type { State } from '../view/wire';
import type { Translation } from '../view/translation';
import { unused } from './reminder';

const LIST = '.jp-RunningSessions';
/** Kernels in the list as a tree, and their notebooks and consoles where it is flat. */
const KERNEL = '.jp-mod-kernel[data-context], .jp-mod-running-list-view .jp-mod-kernel-widget[data-context]';
const HIDDEN = '.lm-mod-hidden';
const LABEL = '.jp-RunningSessions-itemLabel';

/** What a kernel holds in words, by its id: `9.8 GiB`, `9.8 GiB, unused 2 h`, `9.8 GiB parked`, `4 GiB, 2 GiB parked`. */
export function held(state: State, unit: Unit, trans: Translation): Map<string, string> {
  const sizes = new Map<string, number>();
  const parked = new Map<string, number>();
  for (const { kernel, held: size, parking, away } of Object.values(state.rows)) {
    if (kernel !== undefined && size !== undefined) {
      sizes.set(kernel, (sizes.get(kernel) ?? 0) + size);
    }
    if (kernel !== undefined && parking !== undefined && !size) {
      parked.set(kernel, (parked.get(kernel) ?? 0) + (away ?? 0));
    }
  }
  const since = new Map(unused(state).map(one => [one.row.kernel!, one.since]));
  return new Map(
    [...sizes].map(([kernel, size]) => {
      const long = since.has(kernel) ? ago(state.time - since.get(kernel)!, trans) : '';
      const gone = parked.get(kernel);
      const there = gone === undefined || size > 0 ? [withUnit(size, unit)] : [];
      const text = [...there, ...(gone === undefined ? [] : [trans.__('%1 parked', withUnit(gone, unit))])].join(', ');
      return [kernel, long ? trans.__('%1, unused %2', text, long) : text];
    })
  );
}

/** Keep the list's figures up to date; returns a function that ends that, and takes them away. */
export function followRunning(store: Store, trans: Translation, unit: () => Unit): () => void {
  let root: Element | null = null;
  const observer = new MutationObserver(() => draw());
  const draw = (): void => {
    const list = document.querySelector(LIST);
    if (list !== root) {
      observer.disconnect();
      root = list;
      if (list) {
        observer.observe(list, { childList: true, subtree: true }); // attributes, which are written here, are no news
      }
    }
    if (!list || list.closest(HIDDEN)) {
      return;
    }
    const { state, link } = store;
    const live = state && !state.error && link.kind === 'live';
    const texts = live ? held(state, unit(), trans) : new Map<string, string>();
    write(list, texts);
  };
  const deaf = store.subscribe(draw);
  return () => {
    deaf();
    observer.disconnect();
    write(root, new Map());
  };
}

function write(list: Element | null, texts: ReadonlyMap<string, string>): void {
  for (const item of list?.querySelectorAll<HTMLElement>(KERNEL) ?? []) {
    const label = item.querySelector<HTMLElement>(LABEL);
    const text = texts.get(item.dataset['context']!);
    if (label && label.dataset['tfgpu'] !== text) {
      text === undefined ? delete label.dataset['tfgpu'] : (label.dataset['tfgpu'] = text);
    }
  }
}
