// The store behind the panel: the server's stream of messages, which it connects to as long as somebody looks.

import { History } from '../view/history';
import { merge } from '../view/patch';
import { Listeners, type Link, type Store } from '../view/store';
import { VERSION, type Message, type State } from '../view/wire';
import type { Words } from '../view/words';

/** What is used of a WebSocket. */
export type Socket = Pick<WebSocket, 'onmessage' | 'onclose' | 'close'>;

/** The world outside, so that tests can be another. */
export interface World {
  /** Connect to the stream, at so many seconds a message. */
  connect(every: number): Socket;
  /** Ask the server by HTTP, and return the status of its answer; 0 when there is none. */
  probe(): Promise<number>;
  /** Call back after so many milliseconds; returns what prevents it. */
  later(callback: () => void, milliseconds: number): () => void;
  random(): number;
}

/** Milliseconds between tries: the first, and at most. */
const FIRST = 1000;
const MOST = 30_000;

/** Milliseconds after which a silent connection counts as broken. */
const SILENCE = 30_000;

export class Stream implements Store {
  constructor(
    private world: World,
    private words: Words
  ) {}

  /** Say that somebody looks, or no longer does; without anybody there is no connection. */
  want(who: string, wanted: boolean): void {
    wanted ? this.wanted.add(who) : this.wanted.delete(who);
    this.settle();
  }

  /** Say whether the page can be seen; while it cannot, there is no connection. */
  setHidden(hidden: boolean): void {
    this.hidden = hidden;
    this.settle();
  }

  /** Ask for a message each so many seconds. */
  setEvery(every: number): void {
    if (every !== this.every) {
      this.every = every;
      this.reconnect();
    }
  }

  /** Connect anew, and now. */
  reconnect(): void {
    this.fails = 0;
    this.drop();
    this.settle();
  }

  dispose(): void {
    this.wanted.clear();
    this.drop();
  }

  /** Connect or disconnect, as things stand. */
  private settle(): void {
    const wanted = this.wanted.size > 0 && !this.hidden;
    if (!wanted) {
      this.drop();
    } else if (!this.socket && !this.cancel) {
      this.open();
    }
  }

  private open(): void {
    this.drop();
    if (this.link.kind === 'live') {
      this.say({ kind: 'lost' });
    }
    let heard = false;
    const socket = this.world.connect(this.every);
    this.socket = socket;
    socket.onmessage = event => {
      heard = true;
      this.receive(event.data);
    };
    socket.onclose = () => {
      this.drop();
      if (this.link.kind !== 'refused') {
        this.say(this.state ? { kind: 'lost' } : { kind: 'connecting' });
      }
      this.retry(MOST);
      if (!heard) {
        void this.explain();
      }
    };
    this.listen();
  }

  /** Read a message. Whatever does not fit what is known leads to a new connection, which starts from a full one. */
  private receive(data: unknown): void {
    let message: Message;
    try {
      message = JSON.parse(String(data)) as Message;
    } catch {
      this.retry();
      return;
    }
    if (message.version !== VERSION) {
      this.drop();
      const reason = this.words.__('The server speaks another version of tfgpu_magic than this page: reload the page.');
      this.say({ kind: 'refused', reason });
      return;
    }
    if (message.type === 'full') {
      this.state = message.state;
      this.history.fill(message.history);
    } else if (this.state && message.base === this.sequence) {
      this.state = merge(this.state, message.patch) as State;
    } else {
      this.retry();
      return;
    }
    this.sequence = message.sequence;
    this.history.append(this.state);
    this.fails = 0;
    this.listen();
    if (this.link.kind !== 'live' || this.link.every !== this.every) {
      this.link = { kind: 'live', every: this.every };
    }
    this.listeners.tell();
  }

  /** Wait, longer each time and never as long as others do, and connect again. */
  private retry(most = MOST): void {
    this.drop();
    const delay = Math.min(most, FIRST * 2 ** this.fails) * (0.5 + this.world.random());
    this.fails += 1;
    this.cancel = this.world.later(() => {
      this.cancel = null;
      this.settle();
    }, delay);
  }

  /** Connect again where nothing comes any more: a machine that slept does not notice that its connection broke. */
  private listen(): void {
    this.deaf?.();
    this.deaf = this.world.later(() => this.open(), SILENCE);
  }

  /** A WebSocket does not tell why it was refused; an answer by HTTP does. */
  private async explain(): Promise<void> {
    const status = await this.world.probe();
    if (this.link.kind === 'live') {
      return;
    }
    const { words } = this;
    if (status === 403 || status === 401) {
      this.say({ kind: 'refused', reason: words.__('This server does not allow you to see its GPUs.') });
    } else if (status === 404) {
      const reason = words.__(
        'The server extension is not enabled, so there is nobody to ask. Run `jupyter server extension enable tfgpu_magic.server` and restart the server.'
      );
      this.say({ kind: 'refused', reason });
    } else if (this.link.kind === 'refused') {
      this.say(this.state ? { kind: 'lost' } : { kind: 'connecting' });
    }
  }

  private say(link: Link): void {
    this.link = link;
    this.listeners.tell();
  }

  /** Leave the connection and whatever was to happen to it. */
  private drop(): void {
    this.cancel?.();
    this.cancel = null;
    this.deaf?.();
    this.deaf = null;
    if (this.socket) {
      this.socket.onmessage = null;
      this.socket.onclose = null;
      this.socket.close();
      this.socket = null;
    }
  }

  state: State | null = null;
  link: Link = { kind: 'connecting' };
  readonly history = new History();
  private listeners = new Listeners();
  readonly subscribe = this.listeners.subscribe;
  private wanted = new Set<string>();
  private hidden = false;
  private every = 1;
  private sequence = -1;
  private fails = 0;
  private socket: Socket | null = null;
  private cancel: (() => void) | null = null;
  private deaf: (() => void) | null = null;
}
