// The isolated calls that were asked to stop, while they run: their pids may be reused after them.

import type { Store } from '../view/store';

export class Asked {
  constructor(private store: Store) {}

  has(pid: number): boolean {
    return this.pids.has(pid);
  }

  /** Ask a call to stop. Where the server refuses or is not there, the call does not count as asked. */
  async ask(pid: number, send: () => Promise<Response>): Promise<Response> {
    const answer = await send();
    if (answer.ok) {
      this.pids.add(pid);
      this.end ??= this.store.subscribe(this.forget);
    }
    return answer;
  }

  /** Forget those that have ended. */
  private forget = (): void => {
    const there = new Set(Object.values(this.store.state?.rows ?? {}).map(row => row.pid));
    this.pids.forEach(pid => there.has(pid) || this.pids.delete(pid));
    if (!this.pids.size) {
      this.end?.();
      this.end = null;
    }
  };

  private pids = new Set<number>();
  private end: (() => void) | null = null;
}
