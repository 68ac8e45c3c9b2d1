// Draws a view in an element and keeps it as its store is: at most once a frame, and only while it is visible.

import { html, render } from 'lit-html';
import { repeat } from 'lit-html/directives/repeat.js';
import { gpuView } from './gpu';
import { head, notes, notices, old } from './head';
import type { Actions, Look, Options } from './options';
import { labels, ORDERS, Sorter, type Order } from './model';
import type { Store } from './store';
import { next } from './trace';
import { ENGLISH } from './format';

export interface View {
  /** Change some of the options. */
  set(options: Options): void;
  /** Remove the view, and empty the element. */
  dispose(): void;
}

export function mount(element: HTMLElement, store: Store, options: Options = {}): View {
  const drawing = new Drawing(element, store, options);
  return { set: changed => drawing.set(changed), dispose: () => drawing.dispose() };
}

class Drawing {
  constructor(
    private element: HTMLElement,
    private store: Store,
    private options: Options
  ) {
    this.look = this.makeLook();
    this.root.className = 'tfgpu-view';
    this.root.addEventListener('click', this.clicked);
    this.root.addEventListener('change', this.chosen);
    element.append(this.root);
    this.draw();
    this.unsubscribe = store.subscribe(this.request);
    this.observer = new IntersectionObserver(seen => {
      this.visible = seen[seen.length - 1]!.isIntersecting;
      this.options.seen?.(this.visible);
      if (this.visible && this.due) {
        this.request();
      }
    });
    this.observer.observe(this.root);
  }

  set(options: Options): void {
    this.options = { ...this.options, ...options };
    this.look = this.makeLook();
    this.request();
  }

  dispose(): void {
    this.unsubscribe();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    render(null, this.root);
    if (this.root.parentElement === this.element) {
      this.root.remove();
    }
  }

  private makeLook(): Look {
    const { options } = this;
    this.version += 1;
    return {
      trans: options.trans ?? ENGLISH,
      unit: options.unit ?? 'GiB',
      order: options.order ?? 'held',
      span: options.span ?? 600,
      use: options.use ?? false,
      show: { others: true, history: true, notes: true, sensors: true, ...options.show },
      actions: options.actions ?? {},
      current: options.current,
      refresh: options.refresh,
      unfolded: this.unfolded,
      version: this.version
    };
  }

  private request = (): void => {
    this.due = true;
    if (this.visible && !this.frame) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.draw();
      });
    }
  };

  private draw(): void {
    this.due = false;
    const { look, store } = this;
    const { state, link, history } = store;
    const shown = state && !state.error ? state : null;
    const rows = shown ? this.sorter.sort(shown, look.order) : null;
    const all = shown ? labels(shown) : [];
    this.root.classList.toggle('tfgpu-view-old', old(state, link));
    const keep = keepFocus(this.root, this.element);
    render(
      html`${head(state, link, look)} ${notices(state, link, look.trans)}
      ${repeat(
        all,
        label => label,
        (label, index) => {
          const entries = rows!.get(label) ?? [];
          const part = index / all.length;
          return gpuView({ label, gpu: shown!.gpus[label]!, entries, history, now: shown!.time, part }, look);
        }
      )}
      ${notes(state, look)}`,
      this.root
    );
    keep();
    if (store.sequence !== undefined) {
      this.root.dataset['sequence'] = String(store.sequence); // of what is drawn now, for who waits until it is
    }
  }

  /** One listener for all buttons: rows come and go. */
  private clicked = (event: Event): void => {
    const button = (event.target as Element).closest<HTMLElement>('[data-do]');
    const what = button?.dataset['do'];
    if (what === 'refresh') {
      this.look.refresh?.();
      return;
    }
    if (what === 'span') {
      const span = next(this.look.span);
      this.set({ span });
      this.options.spanned?.(span);
      return;
    }
    if (what === 'use') {
      this.set({ use: !this.look.use });
      return;
    }
    const label = button?.dataset['label'];
    if (what === 'unfold' && label !== undefined) {
      this.unfolded.add(label);
      this.request();
      return;
    }
    const key = button?.closest<HTMLElement>('[data-key]')?.dataset['key'];
    const row = key === undefined ? undefined : this.store.state?.rows[key];
    if (row && what !== undefined && Object.hasOwn(this.look.actions, what)) {
      this.look.actions[what as keyof Actions]?.(row);
    }
  };

  private chosen = (event: Event): void => {
    const chosen = (event.target as HTMLSelectElement).value;
    const order = ORDERS.find(name => name === chosen);
    if (order) {
      this.set({ order });
      this.options.ordered?.(order satisfies Order);
    }
  };

  private root = document.createElement('div');
  private sorter = new Sorter();
  private look: Look;
  private unfolded = new Set<string>();
  private version = 0;
  private visible = true;
  private due = false;
  private frame = 0;
  private observer: IntersectionObserver;
  private unsubscribe: () => void;
}

/**
 * Record the focus before a drawing, and return a function that restores it afterwards.
 *
 * A row that changes its place loses the focus. Where it is gone, the name in its place gets it: not another row's
 * button, since a user who presses Enter twice would shut that down next.
 */
function keepFocus(root: HTMLElement, around: HTMLElement): () => void {
  const focused = document.activeElement;
  if (!(focused instanceof HTMLElement) || !root.contains(focused)) {
    return () => undefined;
  }
  const names = (): HTMLElement[] => [...root.querySelectorAll<HTMLElement>('button.tfgpu-view-owner')];
  const name = focused.closest('[data-key]')?.querySelector('button.tfgpu-view-owner');
  const place = names().findIndex(other => other === name);
  return () => {
    if (document.activeElement === focused) {
      return;
    }
    const left = names();
    const next = focused.isConnected ? focused : name?.isConnected ? name : left[Math.min(place, left.length - 1)];
    ((next as HTMLElement | undefined) ?? around).focus({ preventScroll: true });
  };
}
