// Types of the server's and the kernel's messages, which `python -m scripts._wire` makes of Python's.
// Unknown values are absent; sizes are bytes, times seconds since the epoch. Texts are English.

/** The version of the messages that this code reads. */
export const VERSION = 8;

export type Who = 'this' | 'mine' | 'other' | 'gone' | 'unknown';

/** One GPU or MIG instance. */
export interface Gpu {
  /** The number of the MIG instance on its parent, absent for a whole GPU. */
  instance?: number;
  /** `GPU-...` or `MIG-...`, as `CUDA_VISIBLE_DEVICES` takes it. */
  uuid?: string;
  /** The product's name. */
  name?: string;
  /** Bytes of memory. */
  total?: number;
  /** Bytes that the driver counts as used. */
  used?: number;
  /** Bytes that the driver counts as free; of a GPU with a `limit`, those of them that this process can have. */
  free?: number;
  /** What its sensors tell, by their names: percent, degrees Celsius and watts. */
  sensors?: Record<string, number>;
  /** Whether MIG is on, so that CUDA sees its instances and not the GPU itself. */
  mig?: true;
  /** Whether memory is shared with the CPU; `total` is then the machine's memory. */
  unified?: true;
  /** Why figures are missing, in half a sentence; absent when all is well. */
  error?: string;
  /** The most that the driver lets this process's cgroup have, with all that runs in it; absent without a limit. In the cgroup that is limited itself `total` is that too, and in one below it the whole GPU's. */
  limit?: number;
  /** The policy for it in words: `limit 2 GiB`, `growth`, `hidden`, `default: no limit`, `unknown`. */
  policy?: string;
  /** TensorFlow's logical GPUs on it, in TensorFlow's order; absent when hidden. */
  logical?: string;
  /** What is used of it, and by no process of mine; absent where that is nothing or unknown. */
  others?: Share;
}

/** One process on one GPU, or all of another user's there, or all that could not be named together. */
export interface Row {
  /** The label of its GPU. */
  gpu: string;
  /** The process id, as the driver gives it; 0 or less, which no message has, for several or none. */
  pid?: number;
  /** `C`, `G`, `C+G` or `M+C`: compute, graphics, MPS; absent where the driver does not list it. */
  kind?: string;
  /** Bytes by the driver's account, context included; absent where the driver has no figure. In a message its own figure where there is no `kind`. */
  held?: number;
  /** Percent of the multiprocessors' time that its kernels took, in the last of the driver's samples since the lists were read before; 0 where there is none, and absent where the driver does not tell. */
  utilisation?: number;
  /** Since when it has held memory without using the GPU, in seconds since the epoch; absent while it uses it. */
  unused?: number;
  /** Whose it is: of `this` notebook, of this user's others (`mine`), of an `other` user, `gone` or `unknown`. */
  who: Who;
  /** Its name for people; as the process wrote it, so a view must escape it. */
  owner: string;
  /** What the process is called beside its notebook's name, if a kernel has started it and it is not the kernel; else absent. May be hostile text, too. */
  child?: string;
  /** Its path; on the kernel's server where that is the source, else in the file system; absent when not known. */
  path?: string;
  /** The kernel's id on that server; absent where the source is not a server. */
  kernel?: string;
  /** `busy`, `idle` or another of Jupyter's words for a kernel's state: `unknown` of one that only its command line tells; absent of what need be no kernel. */
  state?: string;
  /** When it was last active, in seconds since the epoch; absent when not known. */
  active?: number;
  /** The other documents and consoles that share the kernel, by path or name. */
  also?: string[];
  /** Whether it is an isolated cell or call, which can be stopped without its kernel. */
  call?: true;
  /** When it began, in the system's ticks, so that it can be told from a later process with its pid; absent of what is not this user's. */
  began?: number;
  /** Whether it is a process of this machine that could not be read, since it hangs. */
  silent?: true;
  /** The policy for it in words: `limit 2 GiB`, `growth`, `hidden`, `default: no limit`, `unknown`. */
  policy?: string;
  /** Those of the frameworks that are awake and have used it. */
  figures?: Record<string, Record<string, number>>;
  /** What was parked of it. */
  parked?: Parked;
  /** Since when it waits for room, in seconds since the epoch. */
  waits?: number;
  /** When it had room, in seconds since the epoch; absent while it waits. */
  room?: number;
  /** When the wait ends at the latest, in seconds since the epoch; absent if it has no end. */
  until?: number;
  /** Bytes that it waits for on a GPU; absent if that is not known. */
  needs?: number;
  /** Whether one of several GPUs will do. */
  any_gpu?: true;
  /** The number of its notebook's tone, the same on every GPU and in every view; absent of what is not mine. */
  tone?: number;
  /** Whether it is another notebook of mine that has long been idle and keeps much that it does not use. */
  spare?: true;
  /** If it is no process, but memory for which none is listed, why that is so: the driver lists none, has not listed it yet, or does not tell; else absent. */
  unlisted?: 'never' | 'not yet' | 'untold';
}

/** A part of a GPU's memory. */
export interface Share {
  /** Its owner, for people. */
  text: string;
  /** Bytes. */
  size: number;
}

/** What has become of a process's memory of a GPU that was parked. */
export interface Parked {
  /** Bytes that are in host memory until the next cell; absent where none are. */
  size?: number;
  /** Seconds that bringing them back took the last time; absent before, and while it is parked. */
  back?: number;
}

/** A sentence or more, and how serious it is. */
export interface Note {
  /** The sentence; names in it are safe to show. */
  text: string;
  /** How serious it is, from `good` to `fault`, by which a program or a page can tell what matters. */
  severity: 'good' | 'note' | 'warning' | 'fault';
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
  /** What else there is to know. */
  notes?: Note[];
  /** The GPUs, by their labels. */
  gpus: Record<string, Gpu>;
  /** The rows, by GPU and pid. */
  rows: Record<string, Row>;
}

/** The history: times, and the highest figures of each GPU from one to the next; null where they were not known. */
export interface Past {
  /** The times. */
  times: number[];
  /** The bytes used, by GPU: one figure for each time. */
  used: Record<string, (number | null)[]>;
  /** The same in percent of the time in which kernels ran; absent if no GPU's is known. */
  utilisation?: Record<string, (number | null)[]>;
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
