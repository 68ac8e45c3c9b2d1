// The interface of a view's data: the state, its history and their freshness. `stream.ts` and `table.ts` implement it.

import type { History } from './history';
import type { State } from './wire';

/** Whether new figures come, or why not. */
export type Link =
  | { kind: 'connecting' }
  /** New figures come each so many seconds. */
  | { kind: 'live'; every?: number }
  /** They came, and will come again. */
  | { kind: 'lost' }
  /** No new ones are asked for: these are of the state's time. */
  | { kind: 'saved' }
  /** They will not come; a sentence has the reason. */
  | { kind: 'refused'; reason: string };

export interface Store {
  readonly state: State | null;
  readonly history: History;
  readonly link: Link;
  /** Call back at each change; returns a function that ends that. */
  subscribe(changed: () => void): () => void;
}

/** The subscribers of a store. */
export class Listeners {
  subscribe = (changed: () => void): (() => void) => {
    const entry = { changed };
    this.entries.add(entry);
    return () => void this.entries.delete(entry);
  };

  tell(): void {
    for (const entry of this.entries) {
      entry.changed();
    }
  }

  private entries = new Set<{ changed: () => void }>();
}
