// Types of the server's and the kernel's messages, version 4, as in `monitor/table/message.py`.
// Unknown values are absent; sizes are bytes, times seconds since the epoch. Texts are English until `said.ts` has
// put them in the page's language.

import type { Words } from './said';

/** The version of the messages that this code reads. */
export const VERSION = 4;

export type Who = 'this' | 'mine' | 'other' | 'gone' | 'unknown';

/** How far a row's parking has come: `waiting` is parked, wanted back, and without room. */
export type ParkedState = 'parking' | 'parked' | 'waiting' | 'restoring' | 'failed';

export interface Gpu {
  /** Key of its history; without one, its label is the key. */
  uuid?: string;
  name: string;
  used?: number;
  total?: number;
  free?: number;
  /** Percent of the last moment in which any kernel ran. */
  utilisation?: number;
  /** Degrees Celsius. */
  temperature?: number;
  /** Watts. */
  power?: number;
  /** Half a sentence: why figures are missing. */
  error?: string;
  mig?: true;
  /** Whether it is an instance of a GPU that is cut into such. */
  instance?: true;
  unified?: true;
  logical?: string;
  policy?: string;
  /** What is used of it by none of the user's own rows, whether it is in a row or not. */
  others?: number;
  /** The name of that, where its owner is unknown. */
  rest?: string;
  /** The most that the driver lets the viewer's processes have together. */
  limit?: number;
  /** The words of those of its texts that are sentences, by their names. */
  said?: Record<string, Words>;
}

export interface Row {
  /** Label of the GPU. */
  gpu: string;
  pid?: number;
  kind?: string;
  who: Who;
  /** Its name. It may be hostile text. */
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
  /** The number of its notebook's tone, in every view. */
  tone?: number;
  /** What it surely takes: the driver's figure, or its own report where the driver does not list it (no `kind`). */
  held?: number;
  /** Whether a notebook keeps much that it has long not used: shutting it down gives it back. */
  spare?: true;
  /** Percent of the GPU that its kernels take. */
  utilisation?: number;
  /** Since when it has held memory without using the GPU; absent while it uses it, or that is not known. */
  unused?: number;
  /** When its process began, in the system's ticks, of the user's own that no kernel of this server is. */
  began?: number;
  /** Whether its kernel lets itself be parked. */
  parks?: true;
  /** How far its parking has come; absent where its GPU state is as usual. */
  parking?: ParkedState;
  /** Bytes of this GPU's memory that are in host memory, or on their way there or back. */
  away?: number;
  /** Since when that is so. */
  since?: number;
  /** While it waits for room, who holds most of the GPU. It may be hostile text. */
  behind?: string;
  /** Why it does not go on for now: `gone`, `hangs` or `unanswered`. */
  trouble?: string;
  /** Whether it is on disk, and not in host memory. */
  disk?: true;
  policy?: string;
  /** The frameworks' figures: by framework, their names and bytes. */
  figures?: Record<string, Record<string, number>>;
  said?: Record<string, Words>;
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
  /** Of the notes, a list: a mere text there stands for itself. */
  said?: Record<string, Words>;
}

/** The history: times, and the most that was used of each GPU until the next; null where it was not known. */
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
  /** Seconds after which the next message comes. */
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
