// What server and kernel send, version 2, as types (`views/message.py` has the same). Unknown is absent; sizes are bytes, times seconds since the epoch.

/** The version of the messages that this code reads. */
export const VERSION = 2;

export type Who = 'this' | 'mine' | 'other' | 'gone' | 'unknown';

export interface Gpu {
  /** Key of its history; where it has none, its label is. */
  uuid?: string;
  name: string;
  used?: number;
  total?: number;
  free?: number;
  /** Half a sentence: why figures are missing. */
  error?: string;
  mig?: true;
  unified?: true;
  logical?: string;
  policy?: string;
  /** What is used of it and of none of the reader's own rows, whether a row names it or not. */
  others?: number;
  /** What that is called, where it may be anyone's. */
  rest?: string;
}

export interface Row {
  /** Label of the GPU. */
  gpu: string;
  pid?: number;
  kind?: string;
  who: Who;
  /** What to call it. It may be hostile text. */
  owner: string;
  /** The notebook's path on this server. */
  path?: string;
  /** The id of a kernel of this server. */
  kernel?: string;
  /** Other documents and consoles on that kernel. It may be hostile text. */
  also?: string[];
  state?: string;
  /** Time of its last activity. */
  active?: number;
  /** Whether it is a process that the notebook's kernel has started. */
  child?: true;
  /** Whether it is an isolated cell or call, which can be stopped without the kernel. */
  call?: true;
  /** The number of its notebook's look, in every view. */
  tone?: number;
  /** What it surely takes: as the driver says, or where that cannot list it, and it has no kind, as it says itself. */
  held?: number;
  /** Whether a notebook keeps much that it has long not used: shutting it down brings it back. */
  spare?: true;
  policy?: string;
  /** What frameworks say of it: by framework, the figures' names and bytes. */
  figures?: Record<string, Record<string, number>>;
}

export interface State {
  /** When the GPUs were read; 0 when they never were. */
  time: number;
  /** Since when the figures are old. */
  stale?: number;
  /** Seconds between two readings, where that is more than one. */
  every?: number;
  error?: string;
  absent?: true;
  simulated?: true;
  notes?: string[];
  gpus: Record<string, Gpu>;
  rows: Record<string, Row>;
}

/** Times, and what was used then of each GPU; null where it was not known. */
export interface Past {
  times: number[];
  used: Record<string, (number | null)[]>;
}

export interface Full {
  version: number;
  type: 'full';
  sequence: number;
  state: State;
  history: Past;
  /** Seconds after which the next message comes, or may be asked for. */
  every?: number;
}

export interface Tick {
  version: number;
  type: 'tick';
  sequence: number;
  /** The sequence of the state that the patch is for. */
  base: number;
  /** A JSON Merge Patch (RFC 7386). */
  patch: unknown;
}

export type Message = Full | Tick;
