// The commands, and their places in the palette. The schema puts one of them into the toolbar of notebooks.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { chipIcon } from './icon';
import { obstacle, type AtHand } from './notebook';
import type { Panel } from './panel';
import { show } from './place';
import type { Stream } from './stream';

export const OPEN = 'tfgpu-magic:open';
export const REFRESH = 'tfgpu-magic:refresh';
export const CHOOSE = 'tfgpu-magic:choose';

interface Parts {
  trans: TranslationBundle;
  panel: Panel;
  stream: Stream;
  palette: ICommandPalette | null;
  atHand: AtHand;
  /** Lets the user choose a policy for the notebook at hand. */
  choose: () => Promise<void>;
}

export function addCommands(app: JupyterFrontEnd, { trans, panel, stream, palette, atHand, choose }: Parts): void {
  const none = { args: { type: 'object', properties: {} } } as const;
  app.commands.addCommand(OPEN, {
    label: trans.__('Show GPU Memory'),
    caption: trans.__('Show who holds the memory of which GPU, by notebook'),
    icon: chipIcon,
    describedBy: none,
    execute: () => {
      show(app, panel);
      requestAnimationFrame(() => panel.activate()); // the palette returns the focus first
    }
  });
  app.commands.addCommand(REFRESH, {
    label: trans.__('Refresh GPU Memory'),
    caption: trans.__('Connect anew to the figures of the GPUs'),
    describedBy: none,
    execute: () => stream.reconnect()
  });
  app.commands.addCommand(CHOOSE, {
    label: trans.__('Set GPU Memory of This Notebook…'),
    caption: () => obstacle(atHand, trans) || trans.__('Set the GPU memory that this notebook may take'),
    icon: chipIcon,
    describedBy: none,
    isEnabled: () => !obstacle(atHand, trans),
    execute: choose
  });
  atHand.changed.connect(() => app.commands.notifyCommandChanged(CHOOSE));
  for (const command of [OPEN, CHOOSE, REFRESH]) {
    palette?.addItem({ command, category: trans.__('GPU') });
  }
}
