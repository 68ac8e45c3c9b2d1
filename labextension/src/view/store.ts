// What a view is given: the state, its history and how fresh both are, with one subscription. Where they come from, it hides.

import type { History } from './history';
import type { State } from './wire';

/** How the figures come, or why they don't. */
export type Link =
  | { kind: 'connecting' }
  /** New figures come, each so many seconds; a sentence says why no sooner. */
  | { kind: 'live'; every?: number; slow?: string }
  /** They came, and will again. */
  | { kind: 'lost' }
  /** Nobody looks for new ones: these are of the time that the state says. */
  | { kind: 'saved' }
  /** They will not come; a sentence says why. */
  | { kind: 'refused'; reason: string };

export interface Store {
  readonly state: State | null;
  readonly history: History;
  readonly link: Link;
  /** Call back at each change; returns what ends that. */
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
