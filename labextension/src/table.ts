// The store behind the widget: the page's own stream where it has one, else the kernel's traits (`model-store.ts`).

import { ModelStore, type Model } from './model-store';
import type { Shared } from './shared';
import { ENGLISH, type Translation } from './view/format';
import type { History } from './view/history';
import { Listeners, reuse, type Link, type Store } from './view/store';
import type { Row, State } from './view/wire';

/** Milliseconds between two messages to the kernel that it is drawn; three may be lost (`notebook/widget.py`). */
const BEAT = 8000;

/** What a notebook is called in its own outputs (`machine/owners/attribution.py`). */
const THIS = 'this notebook';

/** Milliseconds that a stream has to connect again, before the kernel is asked. */
const GRACE = 2000;

export class Table implements Store {
  /** @param stream - of the page, which others use too; null where it has none. */
  constructor(
    model: Model,
    private stream: Shared | null
  ) {
    this.trans = stream?.trans ?? ENGLISH;
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

  /** Set whether a view is visible. */
  watch(view: object, seen: boolean): void {
    seen ? this.watchers.add(view) : this.watchers.delete(view);
    this.settle();
  }

  /** Set whether the page is hidden. */
  setHidden(hidden: boolean): void {
    this.hidden = hidden;
    this.settle();
  }

  dispose(): void {
    this.ends.forEach(end => end());
    this.watchers.clear();
    this.stream?.want(this, false);
    this.quiet();
    this.kernel.dispose();
  }

  /** Take the figures from where they cost least at present. */
  private settle = (): void => {
    if (this.settling) {
      return; // the stream calls back when this changes it
    }
    this.settling = true;
    this.choose();
    this.settling = false;
    this.listeners.tell();
  };

  private choose(): void {
    const { kernel } = this;
    // A server shows its GPUs whether the kernel is alive or not; a table belongs to its kernel, and ends with it.
    const watched = this.watchers.size > 0 && !this.hidden && kernel.live;
    const served = kernel.answers && kernel.kernel !== '' && !kernel.state?.error && !this.contradicted();
    this.stream?.want(this, watched && served && 'processes');
    // A server without a driver may have its kernels on other machines: its error must not hide their figures.
    const told = served && this.stream?.state && !this.stream.state.error ? this.stream : null;
    const streaming = told?.link.kind === 'live';
    this.from = told && (streaming || kernel.link.kind !== 'live') ? told : kernel;
    if (watched && !streaming) {
      this.speak();
    } else {
      this.quiet();
    }
    if (watched || this.from === kernel) {
      this.read(); // what others have the stream send is of no use to a table that nobody sees
    }
  }

  /** Whether the server's figures show that it is on another machine than the kernel, or sees other GPUs. */
  private contradicted(): boolean {
    const [ours, theirs] = [gpus(this.kernel.state), gpus(this.stream?.state ?? null)];
    return ours !== '' && theirs !== '' && ours !== theirs;
  }

  /** Send the kernel now and then that it is drawn; first wait for a stream that was there a moment ago. */
  private speak(): void {
    if (this.timer === undefined) {
      let beats = Infinity;
      let patience = 0;
      const say = (): void => {
        const { answers, every } = this.kernel;
        // Messages to a busy kernel wait for the end of its cell, and must not pile up there;
        // and a kernel that was restarted, which has no table, must not be kept awake.
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

  /** Take the current figures; the last ones stay where the kernel has gone. */
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

  readonly trans: Translation;
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

/** The GPUs of a state by their UUIDs, which no two machines share; empty where they are not known. */
function gpus(state: State | null): string {
  const all = state && !state.error ? Object.values(state.gpus).map(gpu => gpu.uuid ?? '') : [];
  return all.every(Boolean) ? all.sort().join() : '';
}

/**
 * Return a server's state with what only a kernel reports of itself.
 *
 * @param said - the kernel's own state, of any time: its policy and its notes change with its cells alone.
 * @param kernel - the kernel's id on that server.
 */
function asSeenBy(kernel: string, said: State, server: State): State {
  const after: State = { ...server, gpus: { ...server.gpus }, rows: { ...server.rows } };
  for (const label of Object.keys(after.gpus)) {
    const { logical, policy } = (Object.hasOwn(said.gpus, label) && said.gpus[label]) || {};
    after.gpus[label] = { ...server.gpus[label]!, ...(logical && { logical }), ...(policy && { policy }) };
  }
  for (const key of Object.keys(after.rows)) {
    const row = server.rows[key]!;
    if (row.kernel === kernel && row.who === 'mine') {
      after.rows[key] = own(row);
    }
  }
  const notes = [...new Map([...(said.notes ?? []), ...(server.notes ?? [])].map(note => [note.text, note])).values()];
  return notes.length ? { ...after, notes } : after;
}

/** A row of the notebook itself, or of a process that it started. */
function own(row: Row): Row {
  const after: Row = { ...row, who: 'this', owner: row.child ? `${THIS}'s ${row.child}` : THIS };
  delete after.spare; // which is for other notebooks alone
  return after;
}
