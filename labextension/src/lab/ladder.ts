// Notifies of idle notebooks where an administrator's file has the server park or shut them down: the server tells which.

import { Notification } from '@jupyterlab/apputils';
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { canPark } from '../view/parking';
import type { Row } from '../view/wire';
import { sentence, type Idle } from './alerts';
import { rowOf } from './kernel-rows';
import type { IGpuMemory } from './tokens';

/** Milliseconds between two questions. */
const EVERY = 60_000;

/** Whether the server tells of idle notebooks here; else the browser does. */
export function told(): boolean {
  return PageConfig.getOption('tfgpuMagicIdle') === 'true';
}

export class Ladder {
  constructor(private memory: IGpuMemory) {
    void this.ask();
    window.setInterval(() => document.hidden || void this.ask(), EVERY);
  }

  private async ask(): Promise<void> {
    try {
      const answer = await this.request();
      if (answer.ok) {
        this.show(((await answer.json()) as { notebooks: Idle[] }).notebooks);
      }
    } catch {
      // The server does not answer: what was told stays, and the next question comes in a minute.
    }
  }

  private request(body?: object): Promise<Response> {
    const { serverSettings } = this.memory.app.serviceManager;
    const url = URLExt.join(serverSettings.baseUrl, 'tfgpu-magic', 'idle');
    return ServerConnection.makeRequest(
      url,
      body ? { method: 'POST', body: JSON.stringify(body) } : {},
      serverSettings
    );
  }

  /** Show each notebook once, with the times as they are now, until nothing is to be told of it any more. */
  private show(notebooks: readonly Idle[]): void {
    const now = new Map(
      notebooks.filter(one => one.told !== null && one.rests === 0).map(one => [`${one.kernel} ${one.pid}`, one])
    );
    for (const [key, id] of this.shown) {
      if (!now.has(key)) {
        Notification.dismiss(id);
        this.shown.delete(key);
      }
    }
    for (const [key, one] of now) {
      const message = sentence(one, this.memory.settings.now.unit, this.memory.trans);
      const id = this.shown.get(key);
      if (id === undefined) {
        this.shown.set(key, Notification.warning(message, { autoClose: false, actions: this.actions(one) }));
      } else {
        Notification.update({ id, message }); // one that was closed stays so
      }
    }
  }

  private actions(one: Idle): Notification.IAction[] {
    const { trans, actions } = this.memory;
    const row = (): Row => rowOf(this.memory, one.kernel, one.path || one.name); // as it is when it is clicked
    const found = canPark(row())
      ? { label: trans.__('Park'), callback: () => actions.park(row()) }
      : { label: trans.__('Open'), callback: () => actions.open(row()) };
    const notToday = {
      label: trans.__('Not Today'),
      callback: () => void this.request({ kernel: one.kernel, pid: one.pid }).then(() => this.ask())
    };
    return [
      found,
      { label: trans.__('Shut Down…'), callback: () => actions.shutDown(row()) },
      ...(one.put_off ? [] : [notToday])
    ];
  }

  /** The notification of each process that is told of. */
  private shown = new Map<string, string>();
}
