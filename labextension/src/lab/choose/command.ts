// The chooser's command: below the panel, in the palette, and by its schema in the toolbar of notebooks.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import { chipIcon } from '../icon';
import type { IGpuMemory } from '../memory';
import { AtHand, nameOf, obstacle } from '../notebook';
import { choosePolicy } from './dialog';

const CHOOSE = 'tfgpu-magic:choose';

export function addChooser(app: JupyterFrontEnd, memory: IGpuMemory, palette: ICommandPalette | null): void {
  const { trans, panel, stream } = memory;
  const atHand = new AtHand(app.shell, panel);
  const why = (): string => obstacle(atHand, trans, stream);
  let choosing = false;
  const choose = async (): Promise<void> => {
    if (atHand.notebook && !choosing) {
      choosing = true; // a second click opens no second dialog
      await choosePolicy(atHand.notebook, memory).finally(() => (choosing = false));
    }
  };
  let absent = false;
  let told = '';
  app.commands.addCommand(CHOOSE, {
    label: trans.__('Set GPU Memory of This Notebook…'),
    caption: () => why() || trans.__('Set the GPU memory that this notebook may take'),
    icon: chipIcon,
    describedBy: { args: { type: 'object', properties: {} } },
    isEnabled: () => !why(),
    isVisible: () => !absent,
    execute: choose
  });
  palette?.addItem({ command: CHOOSE, category: trans.__('GPU') });
  const tell = (): void => {
    const notebook = absent ? null : atHand.notebook;
    told = why();
    app.commands.notifyCommandChanged(CHOOSE);
    panel.offer(
      notebook && {
        label: trans.__('Set memory of %1…', nameOf(notebook)),
        obstacle: told,
        act: () => void app.commands.execute(CHOOSE)
      }
    );
  };
  atHand.changed.connect(tell);
  stream.subscribe(() => {
    const before = absent;
    absent = stream.state ? (stream.state.absent ?? false) : absent; // without a GPU there is nothing to set
    if (absent !== before || why() !== told) {
      tell();
    }
  });
  tell();
}
