// The panel's commands, and their places in the palette.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { chipIcon } from './icon';
import type { Panel } from './panel';
import { show } from './place';
import type { Stream } from './stream';

export const OPEN = 'tfgpu-magic:open';
export const REFRESH = 'tfgpu-magic:refresh';

interface Parts {
  trans: TranslationBundle;
  panel: Panel;
  stream: Stream;
  palette: ICommandPalette | null;
}

export function addCommands(app: JupyterFrontEnd, { trans, panel, stream, palette }: Parts): void {
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
  for (const command of [OPEN, REFRESH]) {
    palette?.addItem({ command, category: trans.__('GPU') });
  }
}
