// The store behind the widget: the traits of a kernel's model, which anywidget brings to the page.

import { History } from './view/history';
import { reuse } from './view/patch';
import { Listeners, type Link, type Store } from './view/store';
import type { Past, State } from './view/wire';

/** What is used of anywidget's model. */
export interface Model {
  get(name: 'state'): Partial<State> | null;
  get(name: 'history'): Partial<Past> | null;
  get(name: 'live'): boolean;
  on(event: string, callback: () => void): void;
  off(event: string, callback: () => void): void;
  send(message: unknown): void;
}

/** Milliseconds without an update after which figures count as old. */
const PATIENCE = 3500;

export class ModelStore implements Store {
  constructor(private model: Model) {
    const { times, used } = model.get('history') ?? {};
    if (times && used) {
      this.history.fill({ times, used });
    }
    this.read();
    model.on('change:state', this.updated);
    model.on('change:live', this.updated);
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.model.off('change:state', this.updated);
    this.model.off('change:live', this.updated);
  }

  private updated = (): void => {
    this.read();
    this.listeners.tell();
  };

  private read(): void {
    const state = this.model.get('state');
    if (state?.gpus && state.rows) {
      // a new model has none yet
      this.state = reuse(this.state, state) as State;
      this.history.append(this.state);
    }
    this.listen();
  }

  /** Count as live until updates stay away. The timer is the browser's: the kernel's clock may differ. */
  private listen(): void {
    clearTimeout(this.timer);
    this.link = this.model.get('live') ? { kind: 'live' } : { kind: 'saved' };
    this.timer = setTimeout(() => {
      this.link = { kind: 'saved' };
      this.listeners.tell();
    }, PATIENCE);
  }

  state: State | null = null;
  readonly history = new History();
  link: Link = { kind: 'connecting' };
  private listeners = new Listeners();
  readonly subscribe = this.listeners.subscribe;
  private timer: ReturnType<typeof setTimeout> | undefined;
}
