// The chooser's command: below the panel, in the palette, and by its schema in the toolbar of notebooks.

import type { ICommandPalette } from '@jupyterlab/apputils';
import { CurrentNotebook, nameOf, obstacle } from '../current';
import { chipIcon, CHOOSE, type IGpuMemory } from '../tokens';
import { choosePolicy } from './dialog';

export function addChooser(memory: IGpuMemory, palette: ICommandPalette | null): void {
  const { app, trans, stream, notebooks } = memory;
  const current = new CurrentNotebook(app.shell, notebooks);
  const why = (): string => obstacle(current, trans);
  let choosing = false;
  const choose = async (): Promise<void> => {
    if (current.notebook && !choosing) {
      choosing = true; // a second click opens no second dialog
      await choosePolicy(current.notebook, memory).finally(() => (choosing = false));
    }
  };
  let absent = false;
  app.commands.addCommand(CHOOSE, {
    label: ({ named }) =>
      named && current.notebook
        ? trans.__('Set memory of %1…', nameOf(current.notebook))
        : trans.__('Set GPU Memory of This Notebook…'),
    caption: () => why() || trans.__('Set the GPU memory that this notebook may take'),
    icon: chipIcon,
    describedBy: {
      args: {
        type: 'object',
        properties: {
          named: { type: 'boolean', description: 'Whether the label names the notebook; it is hidden without one' }
        }
      }
    },
    isEnabled: () => !why(),
    isVisible: ({ named }) => !absent && (!named || current.notebook !== null),
    execute: choose
  });
  palette?.addItem({ command: CHOOSE, category: trans.__('GPU') });
  const tell = (): void => app.commands.notifyCommandChanged(CHOOSE);
  current.changed.connect(tell);
  stream.subscribe(() => {
    const before = absent;
    absent = stream.state ? (stream.state.absent ?? false) : absent; // without a GPU there is nothing to set
    if (absent !== before) {
      tell();
    }
  });
}
