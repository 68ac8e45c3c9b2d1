// What the plugins share: a token for the server's stream, the user's settings and the actions; commands, and an icon.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IConsoleTracker } from '@jupyterlab/console';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { LabIcon } from '@jupyterlab/ui-components';
import { Token } from '@lumino/coreutils';
import type { Actions } from '../view/options';
import type { Settings } from './settings';
import type { Stream } from './stream';

export interface IGpuMemory {
  app: JupyterFrontEnd;
  trans: TranslationBundle;
  stream: Stream;
  settings: Settings;
  /** What is open in this page; null where the application has no such documents. */
  notebooks: INotebookTracker | null;
  consoles: IConsoleTracker | null;
  actions: Required<Omit<Actions, 'choose'>>;
  /** Opens the panel; null where that is disabled. */
  readonly open: (() => void) | null;
}

export const IGpuMemory = new Token<IGpuMemory>(
  'tfgpu-magic:IGpuMemory',
  "The figures of the GPUs' memory, the user's settings, and the actions on a row."
);

/** The commands by which the plugins reach one another: each works where another one is disabled. */
export const OPEN = 'tfgpu-magic:open';
export const CHOOSE = 'tfgpu-magic:choose';

/** A chip with its pins. */
const CHIP = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <path fill-rule="evenodd" d="M5 4h14a1.5 1.5 0 0 1 1.5 1.5v13A1.5 1.5 0 0 1 19 20H5a1.5 1.5 0 0 1-1.5-1.5v-13A1.5 1.5 0 0 1 5 4Zm.5 2v12h13V6Z"/>
    <path d="M7.5 8.5h2v7h-2zM11 11h2v4.5h-2zM14.5 9.5h2v6h-2z"/>
    <path d="M6.5 1h1.6v2.5H6.5zM11.200 1h1.6v2.5h-1.6zM15.900 1h1.6v2.5h-1.6zM6.5 20.5h1.6V23H6.5zM11.200 20.5h1.6V23h-1.6zM15.900 20.5h1.6V23h-1.6z"/>
  </g>
</svg>`;

export const chipIcon = new LabIcon({ name: 'tfgpu-magic:chip', svgstr: CHIP });
