// The isolated calls that were asked to stop, for as long as they are there: their pids are used again after them.

import type { Store } from '../view/store';

export class Asked {
  constructor(private store: Store) {}

  has(pid: number): boolean {
    return this.pids.has(pid);
  }

  add(pid: number): void {
    this.pids.add(pid);
    this.end ??= this.store.subscribe(this.forget);
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
