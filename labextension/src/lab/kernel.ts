// Asks a kernel through the connection that its notebook has in this page, silently and never behind a running cell; and
// restarts one.

import { KernelAPI, type Kernel } from '@jupyterlab/services';
import type { Note } from '../view/wire';
import type { IGpuMemory } from './tokens';

/** Facts of a GPU, as `chooser.py` has them; unknown ones are absent. */
export interface Gpu {
  label: string;
  name?: string;
  /** Bytes; after a restart where only that can apply a policy. */
  free?: number;
  total?: number;
  /** The most that a ceiling leaves of it, in bytes. */
  most?: number;
  /** The largest limit that fits beside what others hold and are promised, in bytes. */
  fits?: number;
  error?: string;
}

export interface Facts {
  /** The kernel's monotonic clock, in seconds. */
  now: number;
  /** Why only a restart can apply a policy; empty where it is not too late. */
  late: string;
  policy: string;
  /** The most that may be asked; empty where there is none. */
  ceiling: string;
  chooses: boolean;
  gpus: Gpu[];
  /** Why there is no GPU. */
  error: string;
  /** Whether that is only a driver that is slow, and still being asked. */
  asking: boolean;
  /** What the words do that the question was about. */
  plan?: Planned | Refused;
}

export interface Planned {
  outcome: 'fits' | 'late' | 'applied';
  policy: string;
  /** The policy that the other frameworks have; a restart keeps it. */
  others: string;
  takes: { gpu: string; takes: string }[];
  notes: readonly Note[];
  /** What an applied policy does at this stage. */
  standing?: string;
  /** Whether the extension was loaded for it, and what that printed. */
  loads?: boolean;
  said?: string;
}

export interface Refused {
  outcome: 'refused' | 'wrong';
  reason: string;
  ways: string[];
}

/** Why nothing was done: the request came after its time, or after TensorFlow's first op. */
export interface Missed {
  outcome: 'expired' | 'overtaken';
}

export type Outcome = Planned | Refused | Missed;

/** An answer, or why there is none. */
export type Reply<T> =
  { kind: 'answer'; facts: T } | { kind: 'busy' } | { kind: 'missing' } | { kind: 'failed'; reason: string };

/** Seconds that an answer may take: the driver may take two of them (`LOOK` in `chooser.py`), and imports the rest. */
export const PATIENCE = 8;

/** Seconds that a kernel may take to start, and to answer then. */
export const START = 60;

const MIME = 'application/vnd.tfgpu-magic.answer+json';

/** What is used of a connection to a kernel. */
export type Connection = Pick<Kernel.IKernelConnection, 'requestExecute' | 'status'>;

/** Whether a kernel would answer at once. */
export function isFree({ status }: Pick<Kernel.IKernelConnection, 'status'>): boolean {
  return status === 'idle';
}

/** The functions of `chooser.py`, and what they answer. */
interface Answers {
  /** With words, or an empty text. */
  state: Facts;
  /** With words, and the time by the kernel's clock from which on nothing is done. */
  apply: Outcome;
  /** With a plan's policy, and that of the other frameworks. */
  resume: Outcome;
}

/**
 * Ask one question: have a function called in the kernel.
 *
 * @param values - its arguments; Python reads what JSON writes.
 * @param seconds - how long the answer may take; one that comes later is not heard.
 */
export async function ask<Name extends keyof Answers>(
  kernel: Connection,
  name: Name,
  values: (string | number)[],
  seconds = PATIENCE
): Promise<Reply<Answers[Name]>> {
  const call = `${name}(${values.map(value => JSON.stringify(value)).join(', ')})`;
  try {
    const reply = await send(
      kernel,
      { answer: `__import__("tfgpu_magic.notebook.chooser").notebook.chooser.${call}` },
      seconds
    );
    return reply ? answered<Answers[Name]>(reply.content) : { kind: 'busy' };
  } catch (error) {
    return { kind: 'failed', reason: error instanceof Error ? error.message : String(error) };
  }
}

/**
 * Have a kernel evaluate expressions, silently; null where no reply comes in time.
 *
 * The reply is enough: what the kernel publishes besides may be lost while a connection is made.
 */
export async function send(
  kernel: Connection,
  user_expressions: Record<string, string>,
  seconds: number
): Promise<{ content: Content } | null> {
  const request = { code: '', silent: true, store_history: false, stop_on_error: false, user_expressions };
  const future = kernel.requestExecute(request);
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    return await Promise.race([
      new Promise<{ content: Content }>(resolve => (future.onReply = resolve)),
      future.done, // fails where the kernel ends
      new Promise<null>(resolve => (timer = setTimeout(() => resolve(null), seconds * 1000)))
    ]);
  } finally {
    clearTimeout(timer);
    future.dispose();
  }
}

/** Send a kernel that has just been restarted a message, by which all pages learn its state; it may end before. */
export async function wake(kernel: Connection): Promise<void> {
  await send(kernel, {}, START).catch(() => undefined);
}

/** What a kernel replies, with the value of the request's expression or the error that it raised. */
interface Content {
  status: string;
  /** Why nothing was evaluated: the notebook is parked, and is not brought back for a question. */
  evalue?: string;
  user_expressions?: {
    answer?: { status: string; data?: Record<string, unknown>; ename?: string; evalue?: string };
  };
}

function answered<T>({ status, evalue, user_expressions }: Content): Reply<T> {
  const answer = user_expressions?.answer;
  if (answer?.data?.[MIME]) {
    return { kind: 'answer', facts: answer.data[MIME] as T };
  }
  const reason = answer ? `${answer.ename ?? ''}: ${answer.evalue ?? ''}` : (evalue ?? status);
  return answer?.ename === 'ModuleNotFoundError' ? { kind: 'missing' } : { kind: 'failed', reason };
}

/**
 * Restart a kernel as its notebook's menu does where that is open here, so that none of its cells wait any more.
 * No server notifies other pages of a restart, and they would show a kernel that starts; a message to it ends that.
 * It is sent by a connection that is made afterwards: the server may lose messages of one that outlived the restart.
 *
 * @param first - sends that message, and waits for a limited time.
 */
export async function restart<T>(
  { app, notebooks, consoles }: Pick<IGpuMemory, 'app' | 'notebooks' | 'consoles'>,
  id: string,
  first: (kernel: Kernel.IKernelConnection) => Promise<T>
): Promise<T> {
  const { kernels, serverSettings } = app.serviceManager;
  const own = [notebooks, consoles]
    .map(tracker => tracker?.find(({ sessionContext }) => sessionContext.session?.kernel?.id === id))
    .find(Boolean)?.sessionContext.session?.kernel;
  await (own ? own.restart() : KernelAPI.restartKernel(id, serverSettings));
  const connection = kernels.connectTo({ model: { id, name: '' }, handleComms: false });
  try {
    return await first(connection);
  } finally {
    connection.dispose();
  }
}
