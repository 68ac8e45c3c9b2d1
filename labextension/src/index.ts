// The plugins for JupyterLab and Notebook 7. All but the first use what that one shares, and can be disabled alone.

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IConsoleTracker } from '@jupyterlab/console';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { actions } from './lab/actions';
import { addChooser } from './lab/choose/command';
import { followDocument } from './lab/current';
import { network } from './lab/network';
import { Notifications } from './lab/notifications';
import { addOffers } from './lab/offers';
import { addCommand, Panel, place } from './lab/panel';
import { RunningMemory } from './lab/running';
import { ID, Settings } from './lab/settings';
import { StatusItem } from './lab/status';
import { Stream } from './lab/stream';
import { IGpuMemory, OPEN } from './lab/tokens';
import { offer } from './shared';

const memory: JupyterFrontEndPlugin<IGpuMemory> = {
  id: ID,
  description: "Receives the figures of the GPUs' memory, and has the settings and the actions of the others.",
  autoStart: true,
  provides: IGpuMemory,
  optional: [INotebookTracker, IConsoleTracker, ISettingRegistry, ITranslator],
  activate(
    app: JupyterFrontEnd,
    notebooks: INotebookTracker | null,
    consoles: IConsoleTracker | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ): IGpuMemory {
    const trans = (translator ?? nullTranslator).load('tfgpu_magic');
    const stream = new Stream(network(app.serviceManager.serverSettings), trans);
    const seen = (): void => stream.setHidden(document.hidden);
    document.addEventListener('visibilitychange', seen);
    seen();
    offer(stream);
    const shared = { app, trans, stream, settings: new Settings(registry), notebooks, consoles };
    return {
      ...shared,
      actions: actions(shared),
      get open() {
        return app.commands.hasCommand(OPEN) ? () => void app.commands.execute(OPEN) : null;
      }
    };
  }
};

const panel: JupyterFrontEndPlugin<void> = {
  id: 'tfgpu-magic:panel',
  description: 'Shows who holds the memory of which GPU, by notebook.',
  autoStart: true,
  requires: [IGpuMemory],
  optional: [IDocumentManager, ILayoutRestorer, ICommandPalette],
  activate(
    app: JupyterFrontEnd,
    memory: IGpuMemory,
    documents: IDocumentManager | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ): void {
    const panel = new Panel(memory);
    addCommand(memory, panel, palette);
    place(app, panel);
    restorer?.add(panel, panel.id);
    if (documents) {
      followDocument(app.shell, documents, path => panel.set({ current: path }));
    }
  }
};

const status: JupyterFrontEndPlugin<void> = {
  id: 'tfgpu-magic:status',
  description: 'Shows the fullest GPU in the status bar.',
  autoStart: true,
  requires: [IGpuMemory],
  optional: [IStatusBar],
  activate(_: JupyterFrontEnd, memory: IGpuMemory, statusBar: IStatusBar | null): void {
    if (statusBar) {
      const item = new StatusItem(memory);
      statusBar.registerStatusItem('tfgpu-magic:status', {
        item,
        align: 'left',
        rank: 20,
        isActive: () => item.active,
        activeStateChanged: item.activeChanged
      });
    }
  }
};

const notifications: JupyterFrontEndPlugin<void> = {
  id: 'tfgpu-magic:notifications',
  description: 'Notifies of a GPU that fills up, and of memory that is held without use.',
  autoStart: true,
  requires: [IGpuMemory],
  activate(_: JupyterFrontEnd, memory: IGpuMemory): void {
    new Notifications(memory);
  }
};

const running: JupyterFrontEndPlugin<void> = {
  id: 'tfgpu-magic:running',
  description: 'Lists the GPU memory of kernels among what is running.',
  autoStart: true,
  requires: [IGpuMemory],
  optional: [IRunningSessionManagers],
  activate: (_: JupyterFrontEnd, memory: IGpuMemory, managers: IRunningSessionManagers | null) =>
    void managers?.add(new RunningMemory(memory))
};

const chooser: JupyterFrontEndPlugin<void> = {
  id: 'tfgpu-magic:chooser',
  description: 'Sets the GPU memory of a notebook in a dialog.',
  autoStart: true,
  requires: [IGpuMemory],
  optional: [ICommandPalette],
  activate: (_: JupyterFrontEnd, memory: IGpuMemory, palette: ICommandPalette | null) => addChooser(memory, palette)
};

const offers: JupyterFrontEndPlugin<void> = {
  id: 'tfgpu-magic:offers',
  description: 'Makes buttons of the lines that an answer offers.',
  autoStart: true,
  requires: [IGpuMemory, IRenderMimeRegistry],
  activate: (_: JupyterFrontEnd, memory: IGpuMemory, registry: IRenderMimeRegistry) => addOffers(memory, registry)
};

export default [memory, panel, status, notifications, running, chooser, offers];
