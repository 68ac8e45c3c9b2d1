// Types of the server's and the kernel's messages, version 5, as in `monitor/table/message.py`.
// Unknown values are absent; sizes are bytes, times seconds since the epoch. Texts are English.

/** The version of the messages that this code reads. */
export const VERSION = 5;

export type Who = 'this' | 'mine' | 'other' | 'gone' | 'unknown';

/** A GPU, or an instance of one, by its label. */
export interface Gpu {
  /** Key of its history; without one, its label is the key. */
  uuid?: string;
  /** Its name by the driver. */
  name: string;
  /** Bytes that are held of it. */
  used?: number;
  /** Bytes that it has. */
  total?: number;
  /** Bytes that are free for the viewer. */
  free?: number;
  /** Percent of the last moment in which any kernel ran. */
  utilisation?: number;
  /** Degrees Celsius. */
  temperature?: number;
  /** Watts. */
  power?: number;
  /** Half a sentence: why figures are missing. */
  error?: string;
  /** Whether it is cut into instances, and not used itself. */
  mig?: true;
  /** Whether it is an instance of a GPU that is cut into such. */
  instance?: true;
  /** Whether it shares its memory with the CPU. */
  unified?: true;
  /** TensorFlow's logical GPUs on it, in the kernel of the view. */
  logical?: string;
  /** The policy for it, in the kernel of the view. */
  policy?: string;
  /** What is used of it by none of the user's own rows, whether it is in a row or not. */
  others?: number;
  /** The name of that, where its owner is unknown. */
  rest?: string;
  /** The most that the driver lets the viewer's processes have together. */
  limit?: number;
}

/** A process on a GPU, by its label and the pid; or all of another user's there, or all that could not be named. */
export interface Row {
  /** Label of the GPU. */
  gpu: string;
  /** The process. */
  pid?: number;
  /** How it uses the GPU, by the driver: `C` to compute, `G` for graphics. */
  kind?: string;
  /** Whose it is: of `this` notebook, of the user's others (`mine`), of an `other` user, `gone` or `unknown`. */
  who: Who;
  /** Its name. It may be hostile text. */
  owner: string;
  /** The notebook's path on this server. */
  path?: string;
  /** The id of a kernel of this server. */
  kernel?: string;
  /** Other documents and consoles on that kernel. It may be hostile text. */
  also?: string[];
  /** The kernel's state by Jupyter: `idle`, `busy`, `starting`; `unknown` of one that only its command line tells. */
  state?: string;
  /** Time of its last activity. */
  active?: number;
  /** Of a process that the notebook's kernel has started: its name beside the notebook's. It may be hostile text. */
  child?: string;
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
  /** Bytes of it that are in host memory until its next cell; absent where none are. What it holds stays on the GPU. */
  parked?: number;
  /** Seconds that bringing them back took the last time; absent before, and while it is parked. */
  back?: number;
  /** The policy for this GPU, by the kernel's report. */
  policy?: string;
  /** The frameworks' figures: by framework, their names and bytes. */
  figures?: Record<string, Record<string, number>>;
}

/** What a view shows. */
export interface State {
  /** When the GPUs were read; 0 when they never were. */
  time: number;
  /** Since when the figures are old. */
  stale?: number;
  /** Seconds between two readings, where that is more than one. */
  every?: number;
  /** Why there are no figures. */
  error?: string;
  /** Whether there is no driver or GPU here. */
  absent?: true;
  /** Whether the GPUs are simulated. */
  simulated?: true;
  /** What else there is to know, a sentence each. */
  notes?: string[];
  /** The GPUs, by their labels. */
  gpus: Record<string, Gpu>;
  /** The rows, by GPU and pid. */
  rows: Record<string, Row>;
}

/** The history: times, and the most that was used of each GPU until the next; null where it was not known. */
export interface Past {
  /** The times. */
  times: number[];
  /** The bytes, by GPU: one figure for each time. */
  used: Record<string, (number | null)[]>;
}

/** What the user's processes have held of this machine's GPUs since a time. */
export interface OwnHours {
  /** When counting began. */
  since: number;
  /** What was held, times the seconds for which it was. */
  held_byte_seconds: number;
  /** The same of what was held without use. */
  held_unused_byte_seconds: number;
  /** Seconds of processes of which the driver told no bytes: they are in neither figure. */
  unknown_process_seconds: number;
}

/** The message that a view begins with, and that `tfgpu status --json` prints. */
export interface Full {
  /** The version of the messages. */
  version: number;
  /** The kind of message. */
  type: 'full';
  /** A number that rises from state to state. */
  sequence: number;
  /** The state. */
  state: State;
  /** What was used before. */
  history: Past;
  /** Seconds after which the next message comes. */
  every?: number;
  /** Of `tfgpu status --json` alone, where the service for all users counts it. */
  hours?: OwnHours;
}

/** The message that brings a view from one state to the next. */
export interface Tick {
  /** The version of the messages. */
  version: number;
  /** The kind of message. */
  type: 'tick';
  /** The number of the state that it leads to. */
  sequence: number;
  /** The sequence of the state that the patch is for. */
  base: number;
  /** A JSON Merge Patch (RFC 7386). */
  patch: unknown;
}

export type Message = Full | Tick;
