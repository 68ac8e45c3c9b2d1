// The store over the traits of a kernel's model, which anywidget syncs; the kernel renews them while a page draws.

import { History } from './view/history';
import { Listeners, reuse, type Link, type Store } from './view/store';
import type { Past, State } from './view/wire';

/** The part of anywidget's model that is used. */
export interface Model {
  get(name: 'state'): Partial<State> | null;
  get(name: 'history'): Partial<Past> | null;
  get(name: 'live'): boolean;
  get(name: 'every'): number | null;
  get(name: 'kernel'): string | null;
  on(event: string, callback: () => void): void;
  off(event: string, callback: () => void): void;
  send(message: unknown): void;
  /** The page's manager of widgets; JupyterLab's and Notebook's know the kernel. */
  widget_manager?: { kernel?: Kernel | null };
}

/** The part of a Lumino signal that is used. */
interface Signal<T> {
  connect(slot: (sender: unknown, told: T) => void): unknown;
  disconnect(slot: (sender: unknown, told: T) => void): unknown;
}

/** The part of JupyterLab's connection to a kernel that is used. */
interface Kernel {
  statusChanged?: Signal<string>;
  iopubMessage?: Signal<Heard>;
}

interface Heard {
  header: { msg_type: string; session: string };
}

/** A page's messages to its kernel: that it draws, and that it needs the history too. */
export type Word = 'drawn' | 'refresh';

/** Milliseconds without an update after which figures count as old, beyond the kernel's own interval. */
const PATIENCE = 2500;

/** Seconds by which a new state's time may differ from the browser's, whose clock may be another. */
const NEW = 10;

export class ModelStore implements Store {
  constructor(private model: Model) {
    this.past();
    this.read();
    const age = Math.abs(Date.now() / 1000 - (this.state?.time ?? 0));
    if (age < NEW) {
      this.listen();
    }
    model.on('change:state', this.updated);
    model.on('change:history', this.past);
    model.on('change:live', this.updated);
    model.on('comm_live_update', this.parted);
    this.connection = model.widget_manager?.kernel ?? null;
    this.connection?.statusChanged?.connect(this.changed);
    this.connection?.iopubMessage?.connect(this.heard);
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.model.off('change:state', this.updated);
    this.model.off('change:history', this.past);
    this.model.off('change:live', this.updated);
    this.model.off('comm_live_update', this.parted);
    this.connection?.statusChanged?.disconnect(this.changed);
    this.connection?.iopubMessage?.disconnect(this.heard);
  }

  /** Whether updates are drawn, which they are not in Colab. */
  get live(): boolean {
    return this.model.get('live');
  }

  /** Seconds from one state to the next: more than one while a cell runs and messages to the kernel wait. */
  get every(): number {
    return this.model.get('every') ?? 1;
  }

  /** The kernel's id on its server; empty where it has none. */
  get kernel(): string {
    return this.model.get('kernel') ?? '';
  }

  send(type: Word): void {
    this.model.send({ type });
  }

  private updated = (): void => {
    this.read();
    this.answers = true;
    this.listen();
    this.listeners.tell();
  };

  private past = (): void => {
    const { times, used, ...more } = this.model.get('history') ?? {};
    if (times && used) {
      this.history.fill({ times, used, ...more });
    }
  };

  /** The kernel has gone or was replaced by another, of which nothing is known until it answers. */
  private parted = (): void => {
    this.answers = false;
    this.age();
  };

  /** A kernel that is neither idle nor busy is starting, dead, or out of reach: another process may follow. */
  private changed = (_: unknown, status: string): void => {
    if (status !== 'idle' && status !== 'busy' && this.answers) {
      this.parted();
    }
  };

  /**
   * A page may miss all messages of a new process at its start. The old one announces its end; and each has a session
   * of its own, which all its messages name.
   */
  private heard = (_: unknown, { header }: Heard): void => {
    if (header.msg_type === 'stream') {
      return; // it may be the server's own, about a kernel that prints too much
    }
    const another = this.session !== '' && this.session !== header.session;
    this.session = header.session;
    if ((another || header.msg_type === 'shutdown_reply') && this.answers) {
      this.parted();
    }
  };

  private read(): void {
    const state = this.model.get('state');
    if (state?.gpus && state.rows) {
      // a new model has none yet
      this.state = reuse(this.state, state) as State;
      this.history.append(this.state);
    }
  }

  /** Count as live until updates cease. The timer is the browser's: the kernel's clock may differ. */
  private listen(): void {
    clearTimeout(this.timer);
    const { every } = this;
    this.link = this.live ? { kind: 'live', every } : { kind: 'saved' };
    this.timer = setTimeout(this.age, PATIENCE + 1000 * every);
  }

  private age = (): void => {
    clearTimeout(this.timer);
    this.link = { kind: 'saved' };
    this.listeners.tell();
  };

  state: State | null = null;
  readonly history = new History();
  link: Link = { kind: 'saved' };
  /** Whether the kernel is alive, by its messages. */
  answers = false;
  private connection: Kernel | null = null;
  private session = '';
  private listeners = new Listeners();
  readonly subscribe = this.listeners.subscribe;
  private timer: ReturnType<typeof setTimeout> | undefined;
}
