// What the plugins share: the server's stream, the user's choices, and what can be done about a row.

import type { TranslationBundle } from '@jupyterlab/translation';
import { Token } from '@lumino/coreutils';
import type { Actions } from '../view/options';
import type { Surroundings } from './actions';
import type { Choices } from './choices';
import type { Panel } from './panel';
import type { Stream } from './stream';

export interface IGpuMemory {
  stream: Stream;
  trans: TranslationBundle;
  panel: Panel;
  actions: Required<Actions>;
  /** What a dialog about a kernel needs. */
  surroundings: Surroundings;
  readonly choices: Choices;
  /** Apply the user's choices, once they are read and at each change. */
  follow: (apply: (choices: Choices) => void) => void;
  /** Open the panel. */
  open: () => void;
}

export const IGpuMemory = new Token<IGpuMemory>(
  'tfgpu-magic:IGpuMemory',
  "The figures of the GPUs' memory, the panel that shows them, and the user's choices."
);
