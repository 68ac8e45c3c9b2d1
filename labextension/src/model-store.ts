// The store over the traits of a kernel's model, which anywidget brings to the page; the kernel renews them while it is asked to.

import { History } from './view/history';
import { reuse } from './view/patch';
import { Listeners, type Link, type Store } from './view/store';
import type { Past, State } from './view/wire';

/** What is used of anywidget's model. */
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

/** What is used of a Lumino signal. */
interface Signal<T> {
  connect(slot: (sender: unknown, told: T) => void): unknown;
  disconnect(slot: (sender: unknown, told: T) => void): unknown;
}

/** What is used of a page's connection to a kernel, where it is JupyterLab's. */
interface Kernel {
  statusChanged?: Signal<string>;
  iopubMessage?: Signal<Heard>;
}

interface Heard {
  header: { msg_type: string; session: string };
}

/** What a page says to its kernel: that it draws, and that it lacks all there is to draw. */
export type Word = 'drawn' | 'refresh';

/** Milliseconds without an update after which figures count as old, beyond those that the kernel lets pass. */
const PATIENCE = 2500;

/** Seconds that a state's time may be from the browser's, whose clock may differ, for the state to be new. */
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

  /** Whether it draws by itself: where updates are not drawn, as in Colab, it does not. */
  get live(): boolean {
    return this.model.get('live');
  }

  /** Seconds from one state to the next: more than one while a cell runs and nothing that is said to the kernel arrives. */
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
    const { times, used } = this.model.get('history') ?? {};
    if (times && used) {
      this.history.fill({ times, used });
    }
  };

  /** The kernel has gone, or another is there, of which nothing is known until it answers. */
  private parted = (): void => {
    this.answers = false;
    this.age();
  };

  /** Who is neither idle nor busy is starting, dead, or out of reach: who is there afterwards may be another. */
  private changed = (_: unknown, status: string): void => {
    if (status !== 'idle' && status !== 'busy' && this.answers) {
      this.parted();
    }
  };

  /**
   * A page may miss all that a new process says at its start. The old one says that it goes; and each has a session of
   * its own, which all its messages name.
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

  /** Count as live until updates stay away. The timer is the browser's: the kernel's clock may differ. */
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
  /** Whether the kernel is there, as far as it was heard. */
  answers = false;
  private connection: Kernel | null = null;
  private session = '';
  private listeners = new Listeners();
  readonly subscribe = this.listeners.subscribe;
  private timer: ReturnType<typeof setTimeout> | undefined;
}
