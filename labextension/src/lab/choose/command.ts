// The chooser's command: below the panel, in the palette, and by its schema in the toolbar of notebooks.

import type { ICommandPalette } from '@jupyterlab/apputils';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { CurrentNotebook, nameOf, obstacle } from '../current';
import { chipIcon, CHOOSE, type IGpuMemory } from '../tokens';
import { choosePolicy } from './dialog';
import { ofKernel, opened } from './target';

export function addChooser(memory: IGpuMemory, palette: ICommandPalette | null): void {
  const { app, trans, stream, notebooks } = memory;
  const current = new CurrentNotebook(app.shell, notebooks);
  const why = (): string => obstacle(current, trans);
  let choosing = false;
  const choose = async ({ kernel }: ReadonlyPartialJSONObject): Promise<void> => {
    if (choosing) {
      return; // a second click opens no second dialog
    }
    const other = typeof kernel === 'string' && ofKernel(memory, kernel);
    const target = other || (current.notebook && opened(current.notebook));
    if (target) {
      choosing = true;
      await choosePolicy(target, memory).finally(() => (choosing = false));
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
          named: { type: 'boolean', description: 'Whether the label names the notebook; it is hidden without one' },
          kernel: { type: 'string', description: 'The id of a kernel, in place of that of the current notebook' }
        }
      }
    },
    isEnabled: ({ kernel }) => kernel !== undefined || !why(),
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
