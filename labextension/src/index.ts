// The plugin for JupyterLab and Notebook 7: connects stream, panel, status item, alarm, commands and settings.

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { actions, confirmRestart } from './lab/actions';
import { Alarm } from './lab/alarm';
import { followChoices, USUAL, type Choices } from './lab/choices';
import { choosePolicy } from './lab/choose/dialog';
import { addCommands, CHOOSE, OPEN } from './lab/commands';
import { followCurrent } from './lab/current';
import { chipIcon } from './lab/icon';
import { AtHand, nameOf, obstacle } from './lab/notebook';
import { followOffers } from './lab/offers';
import { Panel } from './lab/panel';
import { place } from './lab/place';
import type { Keeper } from './lab/reminder';
import { followRunning } from './lab/running';
import { StatusItem } from './lab/status';
import { Stream } from './lab/stream';
import { followUnused } from './lab/unused';
import { world } from './lab/world';
import { share } from './view/format';

const ID = 'tfgpu-magic:plugin';

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Shows who holds the memory of which GPU, by notebook.',
  autoStart: true,
  optional: [ILayoutRestorer, ICommandPalette, IStatusBar, ISettingRegistry, ITranslator],
  activate
};

/** What the pages of this browser share; a browser may refuse it, which is found out when it is used. */
const PAGES: Keeper = {
  getItem: key => window.localStorage.getItem(key),
  setItem: (key, text) => window.localStorage.setItem(key, text)
};

function activate(
  app: JupyterFrontEnd,
  restorer: ILayoutRestorer | null,
  palette: ICommandPalette | null,
  statusBar: IStatusBar | null,
  registry: ISettingRegistry | null,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('tfgpu_magic');
  const stream = new Stream(world(app.serviceManager.serverSettings), trans);
  let choices: Choices = USUAL;

  const surroundings = { app, trans, unit: () => choices.unit, store: stream };
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

  const atHand = new AtHand(app.shell, panel);
  let choosing = false;
  const choose = async (): Promise<void> => {
    if (!atHand.notebook || choosing) {
      return;
    }
    choosing = true; // a second click opens no second dialog
    await choosePolicy(atHand.notebook, { app, trans, stream, unit: () => choices.unit }).finally(() => {
      choosing = false;
    });
  };
  addCommands(app, { trans, panel, stream, palette, atHand, choose });
  const offer = (): void => {
    const { notebook } = atHand;
    panel.offer(
      notebook && {
        label: trans.__('Set memory of %1…', nameOf(notebook)),
        obstacle: obstacle(atHand, trans),
        act: () => void app.commands.execute(CHOOSE)
      }
    );
  };
  atHand.changed.connect(offer);
  offer();
  followOffers({ app, trans, mayRestart: notebook => confirmRestart(notebook, surroundings) });
  place(app, panel, trans.__('GPU Memory'));
  restorer?.add(panel, panel.id);
  followCurrent(app, panel, path => panel.set({ current: path }));

  const open = (): void => void app.commands.execute(OPEN);
  const item = statusBar ? new StatusItem(stream, trans, open) : null;
  if (statusBar && item) {
    statusBar.registerStatusItem(ID, {
      item,
      align: 'left',
      rank: 20,
      isActive: () => item.active,
      activeStateChanged: item.activeChanged
    });
  }

  const alarm = new Alarm();
  const deaf = stream.subscribe(() => {
    const { state } = stream;
    const full = (state && !state.error ? alarm.check(state, choices.threshold) : []).map(label => {
      const gpu = state!.gpus[label]!;
      const percent = Math.min(100, Math.floor((100 * (gpu.used ?? 0)) / (gpu.total ?? 1)));
      return trans.__('GPU %1 is %2% full: %3', label, percent, share(gpu.used, gpu.total, choices.unit));
    });
    if (full.length) {
      Notification.warning(full.join('. '), {
        autoClose: 10_000,
        actions: [{ label: trans.__('Show who holds it'), callback: open }]
      });
    }
  });

  const ends = [
    followUnused(stream, {
      trans,
      actions: acts,
      unit: () => choices.unit,
      hours: () => choices.unused,
      keeper: PAGES
    }),
    followRunning(stream, trans, () => choices.unit)
  ];

  const apply = (chosen: Choices): void => {
    choices = chosen;
    const { unit, order, span, others, history, notes, sensors } = chosen;
    panel.set({ unit, order, span, show: { others, history, notes, sensors } });
    item?.set({ unit, wanted: chosen.statusBar });
    stream.want('status bar', item !== null && chosen.statusBar && 'memory');
    stream.want('alarm', chosen.threshold > 0 && 'memory');
    stream.want('unused', chosen.unused > 0 && 'memory');
  };

  const seen = (): void => stream.setHidden(document.hidden);
  document.addEventListener('visibilitychange', seen);
  seen();

  panel.disposed.connect(() => {
    document.removeEventListener('visibilitychange', seen);
    deaf();
    ends.forEach(end => end());
    item?.dispose();
    stream.dispose();
  });

  const keep = followChoices(registry, ID, panel, apply);
}

export default plugin;
