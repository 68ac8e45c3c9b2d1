// The plugins for JupyterLab and Notebook 7. All but the first use what that one shares, and can be disabled alone.

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { actions } from './lab/actions';
import { followChoices, USUAL, type Choices } from './lab/choices';
import { addChooser } from './lab/choose/command';
import { addCommands, OPEN } from './lab/commands';
import { followCurrent } from './lab/current';
import { chipIcon } from './lab/icon';
import { IGpuMemory } from './lab/memory';
import { Notifications } from './lab/notifications';
import { addOffers } from './lab/offers';
import { Panel } from './lab/panel';
import { place } from './lab/place';
import { RunningMemory } from './lab/running';
import { StatusItem } from './lab/status';
import { Stream } from './lab/stream';
import { world } from './lab/world';
import { offer } from './shared';

const ID = 'tfgpu-magic:plugin';

const panel: JupyterFrontEndPlugin<IGpuMemory> = {
  id: ID,
  description: 'Shows who holds the memory of which GPU, by notebook.',
  autoStart: true,
  provides: IGpuMemory,
  optional: [ILayoutRestorer, ICommandPalette, ISettingRegistry, ITranslator],
  activate(
    app: JupyterFrontEnd,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ): IGpuMemory {
    const trans = (translator ?? nullTranslator).load('tfgpu_magic');
    const stream = new Stream(world(app.serviceManager.serverSettings), trans);
    offer(stream);
    let choices: Choices | null = null;
    const changed = new Signal<object, Choices>({});
    const surroundings = { app, trans, unit: () => (choices ?? USUAL).unit, store: stream };
    const acts = actions(surroundings);
    const panel = new Panel(stream, {
      trans,
      actions: acts,
      ordered: order => keep({ order }),
      spanned: span => keep({ span })
    });
    panel.id = 'tfgpu-magic-panel';
    panel.title.icon = chipIcon;
    panel.title.caption = trans.__('GPU Memory');
    panel.node.setAttribute('role', 'region');
    panel.node.setAttribute('aria-label', trans.__('GPU memory'));
    addCommands(app, { trans, panel, stream, palette });
    place(app, panel, trans.__('GPU Memory'));
    restorer?.add(panel, panel.id);
    followCurrent(app, panel, path => panel.set({ current: path }));
    const seen = (): void => stream.setHidden(document.hidden);
    document.addEventListener('visibilitychange', seen);
    seen();
    const keep = followChoices(registry, ID, panel, chosen => {
      choices = chosen;
      const { unit, order, span, others, history, notes, sensors } = chosen;
      panel.set({ unit, order, span, show: { others, history, notes, sensors } });
      changed.emit(chosen);
    });
    return {
      stream,
      trans,
      panel,
      actions: acts,
      surroundings,
      get choices() {
        return choices ?? USUAL;
      },
      follow(apply) {
        changed.connect((_, chosen) => apply(chosen));
        if (choices) {
          apply(choices);
        }
      },
      open: () => void app.commands.execute(OPEN)
    };
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
      const { stream, trans, open } = memory;
      const item = new StatusItem(stream, trans, open);
      statusBar.registerStatusItem('tfgpu-magic:status', {
        item,
        align: 'left',
        rank: 20,
        isActive: () => item.active,
        activeStateChanged: item.activeChanged
      });
      memory.follow(({ unit, statusBar: wanted }) => {
        item.set({ unit, wanted });
        stream.want('status bar', wanted && 'memory');
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
    memory.follow(({ threshold, unused }) => {
      memory.stream.want('notifications', (threshold > 0 || unused > 0) && 'memory');
    });
  }
};

const running: JupyterFrontEndPlugin<void> = {
  id: 'tfgpu-magic:running',
  description: 'Lists the GPU memory of kernels among what is running.',
  autoStart: true,
  requires: [IGpuMemory],
  optional: [IRunningSessionManagers],
  activate(_: JupyterFrontEnd, memory: IGpuMemory, managers: IRunningSessionManagers | null): void {
    managers?.add(new RunningMemory(memory));
  }
};

const chooser: JupyterFrontEndPlugin<void> = {
  id: 'tfgpu-magic:chooser',
  description: 'Sets the GPU memory of a notebook in a dialog.',
  autoStart: true,
  requires: [IGpuMemory],
  optional: [ICommandPalette],
  activate: addChooser
};

const offers: JupyterFrontEndPlugin<void> = {
  id: 'tfgpu-magic:offers',
  description: 'Makes buttons of the lines that an answer offers.',
  autoStart: true,
  requires: [IGpuMemory, IRenderMimeRegistry],
  activate: addOffers
};

export default [panel, status, notifications, running, chooser, offers];
