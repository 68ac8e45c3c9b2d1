// The isolated calls and processes that were asked to stop, while they run: their pids may be reused after them.

import type { Store } from '../view/store';
import type { Row } from '../view/wire';

export class Asked {
  constructor(private store: Store) {}

  has(row: Row): boolean {
    return this.asked.has(identity(row));
  }

  /** Ask a row's process to stop. Where the server refuses or is not there, it does not count as asked. */
  async ask(row: Row, send: () => Promise<Response>): Promise<Response> {
    const answer = await send();
    if (answer.ok) {
      this.asked.add(identity(row));
      this.end ??= this.store.subscribe(this.forget);
    }
    return answer;
  }

  /** Forget those that have ended. */
  private forget = (): void => {
    const there = new Set(Object.values(this.store.state?.rows ?? {}).map(identity));
    this.asked.forEach(one => there.has(one) || this.asked.delete(one));
    if (!this.asked.size) {
      this.end?.();
      this.end = null;
    }
  };

  private asked = new Set<string>();
  private end: (() => void) | null = null;
}

/** A row's process: its pid, and when it began where that is told, since a row may be another one's at the next look. */
function identity({ pid, began }: Row): string {
  return `${pid} ${began}`;
}
