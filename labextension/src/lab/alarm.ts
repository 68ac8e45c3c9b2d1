// Notices when a GPU fills up: once, until it has emptied again, and not if it was full at the first look. Pure.

import type { State } from '../view/wire';

/** Percentage points that a GPU must fall below the threshold before it can fill up again. */
const BACK = 5;

export class Alarm {
  /**
   * Return the labels of the GPUs that have just passed a threshold.
   *
   * @param percent - the threshold; 0 for none.
   */
  check(state: State, percent: number): string[] {
    if (percent !== this.percent) {
      this.percent = percent;
      this.full = new Set([...this.last].filter(([, used]) => used >= percent).map(([label]) => label));
    }
    const passed: string[] = [];
    for (const [label, { used, total }] of Object.entries(state.gpus)) {
      if (used === undefined || !total) {
        continue;
      }
      const now = (100 * used) / total;
      const known = this.last.has(label);
      this.last.set(label, now);
      if (percent && now >= percent && !this.full.has(label)) {
        this.full.add(label);
        if (known) {
          passed.push(label);
        }
      } else if (now < percent - BACK) {
        this.full.delete(label);
      }
    }
    return passed;
  }

  private full = new Set<string>();
  private last = new Map<string, number>();
  private percent = 0;
}
