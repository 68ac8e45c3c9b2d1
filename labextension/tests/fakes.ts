// What tests put in place of a page's surroundings: a kernel's model, a signal, and a server's socket.

import type { Model } from '../src/model-store';
import { type Network, type Refusal, type Socket } from '../src/lab/stream';
import { VERSION, type State } from '../src/view/wire';
import { state } from './make';

export class FakeSignal<T> {
  slots = new Set<(sender: unknown, told: T) => void>();
  connect(slot: (sender: unknown, told: T) => void): void {
    this.slots.add(slot);
  }
  disconnect(slot: (sender: unknown, told: T) => void): void {
    this.slots.delete(slot);
  }
  emit(told: T): void {
    this.slots.forEach(slot => slot(null, told));
  }
}

/** What is used of a page's connection to a kernel. */
export class FakeKernel {
  statusChanged = new FakeSignal<string>();
  iopubMessage = new FakeSignal<{ header: { msg_type: string; session: string } }>();
  say(msg_type: string, session: string): void {
    this.iopubMessage.emit({ header: { msg_type, session } });
  }
  get listeners(): number {
    return this.statusChanged.slots.size + this.iopubMessage.slots.size;
  }
}

/** A kernel's model as anywidget brings it to a page. */
export class FakeModel {
  traits: Record<string, unknown> = { state: state(), history: { times: [], used: {} }, live: true, kernel: 'k' };
  callbacks = new Map<string, Set<() => void>>();
  sent: string[] = [];
  widget_manager = { kernel: new FakeKernel() };

  /** It is as much of a model as is used. */
  get model(): Model {
    return this as unknown as Model;
  }
  get(name: string): unknown {
    return this.traits[name];
  }
  set(name: string, value: unknown): void {
    this.traits[name] = value;
    this.fire(`change:${name}`);
  }
  on(event: string, callback: () => void): void {
    this.callbacks.set(event, (this.callbacks.get(event) ?? new Set()).add(callback));
  }
  off(event: string, callback: () => void): void {
    this.callbacks.get(event)?.delete(callback);
  }
  send(message: { type: string }): void {
    this.sent.push(message.type);
  }
  fire(event: string): void {
    this.callbacks.get(event)?.forEach(callback => callback());
  }
  /** What was sent since it was asked last. */
  heard(): string[] {
    return this.sent.splice(0);
  }
  get listeners(): number {
    const events = [...this.callbacks.values()].reduce((sum, callbacks) => sum + callbacks.size, 0);
    return events + this.widget_manager.kernel.listeners;
  }
}

export class FakeSocket {
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  closed = false;
  sent: unknown[] = [];
  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }
  close(): void {
    this.closed = true;
  }
  say(message: unknown): void {
    this.onmessage?.({ data: typeof message === 'string' ? message : JSON.stringify(message) });
  }
}

/** A network in whose page time passes when a test says so. */
export class FakeNetwork implements Network {
  sockets: FakeSocket[] = [];
  timers: { callback: () => void; milliseconds: number }[] = [];
  answer: Refusal = null;

  connect(): Socket {
    const socket = new FakeSocket();
    this.sockets.push(socket);
    return socket;
  }
  refusal(): Promise<Refusal> {
    return Promise.resolve(this.answer);
  }
  later(callback: () => void, milliseconds: number): () => void {
    const timer = { callback, milliseconds };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter(other => other !== timer);
    };
  }
  random(): number {
    return 0.5;
  }
  get last(): FakeSocket {
    return this.sockets[this.sockets.length - 1]!;
  }
  /** How many connections there are. */
  get open(): number {
    return this.sockets.filter(socket => !socket.closed).length;
  }
  /** Let one waiting end. */
  fire(milliseconds: number): void {
    const timer = this.timers.find(one => one.milliseconds === milliseconds)!;
    this.timers = this.timers.filter(other => other !== timer);
    timer.callback();
  }
  /** Let all waiting end. */
  pass(): void {
    const timers = this.timers;
    this.timers = [];
    timers.forEach(timer => timer.callback());
  }
}

/** The message that a stream begins with. */
export function full(sequence = 1, its: State = state(), more: object = {}): unknown {
  const history = { times: [999], used: { 'GPU-0': [1] } };
  return { version: VERSION, type: 'full', sequence, state: its, history, ...more };
}
