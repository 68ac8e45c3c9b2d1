// The store behind the panel: the server's stream of messages, which is connected as long as there are viewers.

import { History } from '../view/history';
import { Listeners, merge, type Link, type Store } from '../view/store';
import { VERSION, type Message, type State } from '../view/wire';
import type { Translation } from '../view/format';

/** The part of a WebSocket that is used. */
export type Socket = Pick<WebSocket, 'onmessage' | 'onclose' | 'send' | 'close'>;

/** What a viewer shows. For memory alone the server asks the driver for less. */
export type Looks = 'processes' | 'memory';

/** Why a server opens no stream; null where it does not say. */
export type Refusal = 'not allowed' | 'not logged in' | 'not there' | null;

/** The network and the timers, which tests replace. */
export interface Network {
  /** Connect to the stream. */
  connect(): Socket;
  /** Ask the server over HTTP why it opens no stream. */
  refusal(): Promise<Refusal>;
  /** Call back after so many milliseconds; returns a function that cancels it. */
  later(callback: () => void, milliseconds: number): () => void;
  random(): number;
}

/** Milliseconds between tries: the first, at most, and where the server refuses: each is two lines of its log. */
const FIRST = 1000;
const MOST = 30_000;
const REFUSED = 300_000;

/** Milliseconds after which a connection counts as broken: without a first message, and, at the least, after it. */
const OPENING = 30_000;
const SILENCE = 10_000;
/** Messages that may be missing until then. */
const MISSING = 3;

export class Stream implements Store {
  /** @param trans - the page's language, which tables have from here. */
  constructor(
    private network: Network,
    readonly trans: Translation
  ) {}

  /** Set what a viewer shows, or that it shows nothing; without viewers there is no connection. */
  want(who: unknown, what: Looks | false): void {
    what ? this.wanted.set(who, what) : this.wanted.delete(who);
    if (this.rests && this.shown) {
      this.reconnect();
    }
    this.settle();
    this.tell();
  }

  /** Set whether the page is hidden; while it is, there is no connection. */
  setHidden(hidden: boolean): void {
    this.hidden = hidden;
    this.settle();
  }

  /** Connect again now. */
  reconnect(): void {
    this.fails = 0;
    this.rests = false;
    this.drop();
    this.settle();
  }

  dispose(): void {
    this.wanted.clear();
    this.settle();
  }

  /** Whether there are viewers. */
  private get needed(): boolean {
    return this.wanted.size > 0 && !this.hidden;
  }

  /** Whether a view shows processes, and not a figure or notifications alone. */
  private get shown(): boolean {
    return [...this.wanted.values()].includes('processes');
  }

  /** Connect or disconnect, as needed. */
  private settle(): void {
    if (!this.needed) {
      this.drop();
    } else if (!this.socket && !this.cancel) {
      this.open();
    }
  }

  /** Send the server whether processes are shown, unless it has that: by default they are. */
  private tell(): void {
    const processes = this.shown;
    if (this.told !== null && this.told !== processes) {
      this.told = processes;
      this.socket?.send(JSON.stringify({ processes }));
    }
  }

  private open(): void {
    this.drop();
    if (this.link.kind === 'live') {
      this.say({ kind: 'lost' });
    }
    let heard = false;
    const socket = this.network.connect();
    this.socket = socket;
    socket.onmessage = event => {
      heard = true;
      this.receive(event.data);
    };
    socket.onclose = () => this.broke(heard);
    this.listen(OPENING, () => this.broke(heard));
  }

  /** Connect again, later; where the connection was never opened, find out why. */
  private broke(heard: boolean): void {
    if (this.link.kind !== 'refused') {
      this.say(this.state ? { kind: 'lost' } : { kind: 'connecting' });
    }
    this.retry();
    if (!heard) {
      void this.explain();
    }
  }

  /** Read a message. One that does not fit the state leads to a new connection, which starts from a full message. */
  private receive(data: unknown): void {
    const message = read(String(data));
    if (!message) {
      this.retry();
      return;
    }
    if (message.version !== VERSION) {
      this.refuse(this.trans.__('The server speaks another version of tfgpu_magic than this page: reload the page.'));
      return;
    }
    if (message.type === 'full') {
      this.every = message.every ?? 1;
      this.history.fill(message.history);
      this.state = message.state;
      this.told ??= true;
      this.tell();
    } else if (this.state && message.base === this.sequence) {
      this.state = merge(this.state, message.patch) as State;
    } else {
      this.retry();
      return;
    }
    this.sequence = message.sequence;
    this.history.append(this.state);
    this.fails = 0;
    this.listen(Math.max(SILENCE, MISSING * this.every * 1000), () => this.open());
    if (this.link.kind !== 'live' || this.link.every !== this.every) {
      this.link = { kind: 'live', every: this.every };
    }
    this.listeners.tell();
    this.rests = this.state.absent === true && !this.shown;
    if (this.rests) {
      this.retry(REFUSED, REFUSED); // a machine without a GPU pays for no more than that, unless a view is open
    }
  }

  /** Show why there are no figures, and ask again in a few minutes. */
  private refuse(reason: string): void {
    this.say({ kind: 'refused', reason });
    this.retry(REFUSED, REFUSED);
  }

  /** Wait, longer each time and by a random factor, and connect again. */
  private retry(most = MOST, least = FIRST): void {
    this.drop();
    const delay = Math.min(most, least * 2 ** this.fails) * (0.5 + this.network.random());
    this.fails += 1;
    this.cancel = this.network.later(() => {
      this.cancel = null;
      this.settle();
    }, delay);
  }

  /** Connect again where messages cease: a machine that slept does not notice that its connection broke. */
  private listen(milliseconds: number, silent: () => void): void {
    this.deaf?.();
    this.deaf = this.network.later(silent, milliseconds);
  }

  /** Find out over HTTP why a WebSocket was refused, which itself has no reason. */
  private async explain(): Promise<void> {
    const answer = await this.network.refusal();
    if (!this.needed || this.link.kind === 'live') {
      return;
    }
    const { trans } = this;
    if (answer === 'not allowed') {
      this.refuse(trans.__('This server does not allow you to see its GPUs.'));
    } else if (answer === 'not logged in') {
      this.refuse(trans.__('You are not logged in to this server any more: reload the page.'));
    } else if (answer === 'not there') {
      this.refuse(
        trans.__(
          'The server extension is not enabled or failed to load, so there is nobody to ask. The log of the server says which. `jupyter server extension enable tfgpu_magic.server` enables it; then restart the server.'
        )
      );
    } else {
      this.say(this.state ? { kind: 'lost' } : { kind: 'connecting' });
    }
  }

  private say(link: Link): void {
    this.link = link;
    this.listeners.tell();
  }

  /** Close the connection and cancel its timers. */
  private drop(): void {
    this.cancel?.();
    this.cancel = null;
    this.deaf?.();
    this.deaf = null;
    this.told = null;
    if (this.socket) {
      this.socket.onmessage = null;
      this.socket.onclose = null;
      this.socket.close();
      this.socket = null;
    }
  }

  state: State | null = null;
  sequence = -1;
  link: Link = { kind: 'connecting' };
  readonly history = new History();
  private listeners = new Listeners();
  readonly subscribe = this.listeners.subscribe;
  private wanted = new Map<unknown, Looks>();
  private hidden = false;
  /** Seconds between messages, by the server's pace. */
  private every = 1;
  private fails = 0;
  /** Whether there is nothing to see here, and it connects again in a few minutes. */
  private rests = false;
  private socket: Socket | null = null;
  /** Whether the server takes processes as shown; null until it has sent a message. */
  private told: boolean | null = null;
  private cancel: (() => void) | null = null;
  private deaf: (() => void) | null = null;
}

/** Parse a text as a message of any version; return null where it is none. */
function read(text: string): Message | null {
  try {
    const said = JSON.parse(text) as Partial<Message> | null;
    return typeof said?.version === 'number' ? (said as Message) : null;
  } catch {
    return null;
  }
}
