// The store behind the widget: the server's stream where the page has one, else the kernel's word, and neither when nobody looks.

import { ModelStore, type Model } from './model-store';
import { asSeenBy, gpus } from './own';
import type { Stream } from './lab/stream';
import type { History } from './view/history';
import { reuse } from './view/patch';
import { Listeners, type Link, type Store } from './view/store';
import type { State } from './view/wire';

/** Milliseconds between two words to the kernel that it is drawn; three may be lost (`views/presence.py`). */
const BEAT = 8000;

/** Milliseconds that a stream has to be there again, before the kernel is asked. */
const GRACE = 2000;

const WHO = 'table';

export class Table implements Store {
  /** @param stream - of the page's server; null where the page has none. */
  constructor(
    model: Model,
    private stream: Stream | null
  ) {
    this.from = this.kernel = new ModelStore(model);
    this.history = this.kernel.history;
    this.read();
    this.ends = [this.kernel.subscribe(this.settle)];
    if (stream) {
      this.ends.push(stream.subscribe(this.settle));
    }
  }

  get live(): boolean {
    return this.kernel.live;
  }

  /** Ask for new figures, once. */
  refresh(): void {
    this.kernel.send('refresh');
  }

  /** Say whether somebody sees a view. */
  watch(view: object, seen: boolean): void {
    seen ? this.watchers.add(view) : this.watchers.delete(view);
    this.settle();
  }

  /** Say whether the page can be seen. */
  setHidden(hidden: boolean): void {
    this.hidden = hidden;
    this.settle();
  }

  dispose(): void {
    this.ends.forEach(end => end());
    this.watchers.clear();
    this.leave();
    this.quiet();
    this.kernel.dispose();
  }

  /** Look where it costs least, as things stand. */
  private settle = (): void => {
    if (this.settling) {
      return; // the stream tells what is done with it here
    }
    this.settling = true;
    this.choose();
    this.settling = false;
    this.listeners.tell();
  };

  private choose(): void {
    const { kernel } = this;
    if (this.stream && (this.stream.link.kind === 'refused' || this.contradicted())) {
      this.leave();
    }
    // A server shows its GPUs whether the kernel is there or not; a table is its kernel's, and ends with it.
    const watched = this.watchers.size > 0 && !this.hidden && kernel.live;
    const served = kernel.answers && kernel.kernel !== '' && !kernel.state?.error;
    this.stream?.want(WHO, watched && served && 'processes');
    // A server without a driver may have its kernels on other machines: what they see is not hidden by its error.
    const told = served && this.stream?.state && !this.stream.state.error ? this.stream : null;
    const streaming = told?.link.kind === 'live';
    this.from = told && (streaming || kernel.link.kind !== 'live') ? told : kernel;
    if (watched && !streaming) {
      this.speak();
    } else {
      this.quiet();
    }
    this.read();
  }

  /** Whether the server is seen to be on another machine than the kernel, or to see other GPUs. */
  private contradicted(): boolean {
    const [ours, theirs] = [gpus(this.kernel.state), gpus(this.stream?.state ?? null)];
    return ours !== '' && theirs !== '' && ours !== theirs;
  }

  private leave(): void {
    this.stream?.dispose();
    this.stream = null;
  }

  /** Tell the kernel that it is drawn, and from now on; where the stream was there before, it may be there at once. */
  private speak(): void {
    if (this.timer === undefined) {
      let beats = Infinity;
      let patience = 0;
      const say = (): void => {
        const { answers, every } = this.kernel;
        // What is said to a kernel that hears nothing waits for the end of its cell, and is not to pile up there;
        // and one that was restarted, which knows of no table, is not to be kept awake.
        if (beats >= (answers ? every : Math.max(every, patience))) {
          this.kernel.send(answers && Number.isFinite(beats) ? 'drawn' : 'refresh');
          patience = answers ? 0 : Math.max(1, 2 * patience);
          beats = 0;
        }
        beats += 1;
        this.timer = setTimeout(say, BEAT);
      };
      this.timer = setTimeout(say, this.kernel.answers && this.stream?.state ? GRACE : 0);
    }
  }

  private quiet(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  /** Take what is seen; what was seen last stays where the kernel is not there. */
  private read(): void {
    const { from, kernel } = this;
    if (from !== kernel && from.state && kernel.state) {
      this.state = reuse(this.state, asSeenBy(kernel.kernel, kernel.state, from.state)) as State;
      this.history = from.history;
    } else if (kernel.answers || !this.state) {
      this.state = kernel.state;
      this.history = kernel.history;
    }
  }

  get link(): Link {
    return this.from.link;
  }

  state: State | null = null;
  history: History;
  private kernel: ModelStore;
  private from: Store;
  private ends: (() => void)[];
  private watchers = new Set<object>();
  private hidden = false;
  private settling = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private listeners = new Listeners();
  readonly subscribe = this.listeners.subscribe;
}
