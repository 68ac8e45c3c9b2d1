// Asks a kernel through the connection that its notebook has in this page: silently, and never behind a running cell.

import type { Kernel } from '@jupyterlab/services';

/** Facts of a GPU, as `chooser.py` has them; unknown ones are absent. */
export interface Gpu {
  label: string;
  name?: string;
  /** Bytes; after a restart where only that can apply a policy. */
  free?: number;
  total?: number;
  error?: string;
}

export interface Facts {
  /** The kernel's monotonic clock, in seconds. */
  now: number;
  loaded: boolean;
  /** Why only a restart can apply a policy; empty where it is not too late. */
  late: string;
  policy: string;
  chooses: boolean;
  gpus: Gpu[];
  /** Why there is no GPU. */
  error: string;
}

export interface Planned {
  outcome: 'fits' | 'late' | 'applied';
  policy: string;
  takes: { gpu: string; takes: string }[];
  notes: string[];
  /** What an applied policy does at this stage. */
  standing?: string;
  reason?: string;
  /** Whether the extension was loaded for it, and what that printed. */
  loads?: boolean;
  said?: string;
}

export interface Refused {
  outcome: 'refused' | 'wrong';
  reason: string;
  ways: string[];
}

export type Outcome = Planned | Refused | { outcome: 'expired' };

/** An answer, or why there is none. */
export type Reply<T> =
  { kind: 'answer'; facts: T } | { kind: 'busy' } | { kind: 'missing' } | { kind: 'failed'; reason: string };

/** Seconds that an answer may take: the driver's figures may take two. */
export const PATIENCE = 8;

const MIME = 'application/vnd.tfgpu-magic.answer+json';

/** What is used of a connection to a kernel. */
export type Connection = Pick<Kernel.IKernelConnection, 'requestExecute' | 'status'>;

/** A text as Python writes it. */
export function literal(text: string): string {
  return JSON.stringify(text);
}

/** Whether a kernel would answer at once. */
export function isFree({ status }: Pick<Kernel.IKernelConnection, 'status'>): boolean {
  return status === 'idle';
}

/**
 * Ask several questions at once: calls of functions of `chooser.py`, by names for their answers.
 *
 * @param seconds - how long the answers may take; one that comes later is not heard.
 */
export async function ask<T extends object>(
  kernel: Connection,
  calls: Record<keyof T & string, string>,
  seconds = PATIENCE
): Promise<Reply<T>> {
  const user_expressions = Object.fromEntries(
    Object.entries<string>(calls).map(([name, call]) => [name, `__import__("tfgpu_magic.chooser").chooser.${call}`])
  );
  const request = { code: '', silent: true, store_history: false, stop_on_error: false, user_expressions };
  const future = kernel.requestExecute(request);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<null>(resolve => {
    timer = setTimeout(() => resolve(null), seconds * 1000);
  });
  try {
    const reply = await Promise.race([future.done, late]);
    if (!reply) {
      return { kind: 'busy' };
    }
    return answers<T>(reply.content as { status: string; user_expressions?: Record<string, Expression> });
  } catch (error) {
    return { kind: 'failed', reason: error instanceof Error ? error.message : String(error) };
  } finally {
    clearTimeout(timer);
    future.dispose();
  }
}

/** An answer to one of a request's expressions. */
interface Expression {
  status: string;
  data?: Record<string, unknown>;
  ename?: string;
  evalue?: string;
}

function answers<T extends object>(content: {
  status: string;
  user_expressions?: Record<string, Expression>;
}): Reply<T> {
  const facts: Record<string, unknown> = {};
  for (const [name, { status, data, ename, evalue }] of Object.entries(content.user_expressions ?? {})) {
    if (status !== 'ok' || !data?.[MIME]) {
      const reason = `${ename ?? ''}: ${evalue ?? ''}`;
      return ename === 'ModuleNotFoundError' ? { kind: 'missing' } : { kind: 'failed', reason };
    }
    facts[name] = data[MIME];
  }
  return Object.keys(facts).length ? { kind: 'answer', facts: facts as T } : { kind: 'failed', reason: content.status };
}
