// The widget's module for anywidget: the view over the traits of a kernel's model.

import { History } from './view/history';
import { mount } from './view/mount';
import { Listeners, type Link, type Store } from './view/store';
import type { Past, State } from './view/wire';

/** What is used of anywidget's model. */
interface Model {
  get(name: 'state'): Partial<State> | null;
  get(name: 'history'): Partial<Past> | null;
  get(name: 'live'): boolean;
  on(event: string, callback: () => void): void;
  off(event: string, callback: () => void): void;
  send(message: unknown): void;
}

/** Milliseconds without an update after which figures count as old. */
const PATIENCE = 3500;

class ModelStore implements Store {
  constructor(private model: Model) {
    const { times, used } = model.get('history') ?? {};
    if (times && used) {
      this.history.fill({ times, used });
    }
    if (this.state) {
      this.history.append(this.state);
    }
    this.listen();
    model.on('change:state', this.updated);
    model.on('change:live', this.updated);
  }

  get state(): State | null {
    const state = this.model.get('state');
    return state?.gpus && state.rows ? (state as State) : null; // a new model has none yet
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.model.off('change:state', this.updated);
    this.model.off('change:live', this.updated);
  }

  private updated = (): void => {
    if (this.state) {
      this.history.append(this.state);
    }
    this.listen();
    this.listeners.tell();
  };

  /** Count as live until updates stay away. The timer is the browser's: the kernel's clock may differ. */
  private listen(): void {
    clearTimeout(this.timer);
    this.link = this.model.get('live') ? { kind: 'live' } : { kind: 'saved' };
    this.timer = setTimeout(() => {
      this.link = { kind: 'saved' };
      this.listeners.tell();
    }, PATIENCE);
  }

  readonly history = new History();
  link: Link = { kind: 'connecting' };
  private listeners = new Listeners();
  readonly subscribe = this.listeners.subscribe;
  private timer: ReturnType<typeof setTimeout> | undefined;
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const store = new ModelStore(model);
  const refresh = (): void => model.send({ type: 'refresh' });
  const view = mount(el, store, { ofNotebook: true, refresh: model.get('live') ? undefined : refresh });
  const live = (): void => view.set({ refresh: model.get('live') ? undefined : refresh });
  model.on('change:live', live);
  return () => {
    model.off('change:live', live);
    view.dispose();
    store.dispose();
  };
}

export default { render };
