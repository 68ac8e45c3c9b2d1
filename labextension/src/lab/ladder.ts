// Notifies of what the server tells by an administrator's file: idle notebooks that are to be shut down.

import { Notification } from '@jupyterlab/apputils';
import { PageConfig } from '@jupyterlab/coreutils';
import type { Row } from '../view/wire';
import { sentence, type Idle, type Told } from './alerts';
import { rowOf } from './kernel-rows';
import { post, request } from './network';
import type { IGpuMemory } from './tokens';

/** Milliseconds between two questions. */
const EVERY = 60_000;

/** Whether the server tells of idle notebooks, which the browser does otherwise. */
export function tells(): boolean {
  return PageConfig.getOption('tfgpuMagicIdle') === 'idle';
}

export class Ladder {
  constructor(private memory: IGpuMemory) {
    this.settings = memory.app.serviceManager.serverSettings;
    void this.ask();
    window.setInterval(() => void this.ask(), EVERY);
  }

  /** Ask, unless the page is out of sight: the server counts the hours to the next step from its first answer. */
  private async ask(): Promise<void> {
    if (document.hidden) {
      return;
    }
    try {
      const answer = await request(this.settings, 'tfgpu-magic/idle', {});
      if (answer.ok) {
        this.show((await answer.json()) as Told);
      }
    } catch {
      // The server does not answer: what was told stays, and the next question comes in a minute.
    }
  }

  /** Show each notebook once, with the figures as they are now, until there is nothing to tell of it. */
  private show(told: Told): void {
    const { settings, trans } = this.memory;
    const now = new Map<string, { message: string; actions: Notification.IAction[] }>(
      told.notebooks
        .filter(one => one.told !== null && one.rests === 0)
        .map(one => [
          `${one.kernel} ${one.pid}`,
          { message: sentence(one, settings.now.unit, trans), actions: this.actions(one) }
        ])
    );
    for (const [key, id] of this.shown) {
      if (!now.has(key)) {
        Notification.dismiss(id);
        this.shown.delete(key);
      }
    }
    for (const [key, { message, actions }] of now) {
      const id = this.shown.get(key);
      if (id === undefined) {
        this.shown.set(key, Notification.warning(message, { autoClose: false, actions }));
      } else {
        Notification.update({ id, message }); // one that was closed stays so
      }
    }
  }

  private actions(one: Idle): Notification.IAction[] {
    const { trans, actions } = this.memory;
    const row = (): Row => rowOf(this.memory, one.kernel, one.path || one.name); // as it is when it is clicked
    const notToday = {
      label: trans.__('Not Today'),
      callback: () => void post(this.settings, 'idle', { kernel: one.kernel, pid: one.pid }).then(() => this.ask())
    };
    return [
      { label: trans.__('Open'), callback: () => actions.open(row()) },
      { label: trans.__('Shut Down…'), callback: () => actions.shutDown(row()) },
      ...(one.put_off ? [] : [notToday])
    ];
  }

  private settings;
  /** The notification of each process that is told of. */
  private shown = new Map<string, string>();
}
