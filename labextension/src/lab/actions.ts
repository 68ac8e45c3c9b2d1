// The panel's actions on a notebook: open it, restart its kernel, shut it down, stop a call.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import { URLExt } from '@jupyterlab/coreutils';
import { KernelAPI, ServerConnection, type Kernel, type Session } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { cut, type Unit } from '../view/format';
import type { Actions } from '../view/options';
import type { Store } from '../view/store';
import type { Row } from '../view/wire';
import { Asked } from './asked';
import { ending, SHOWN } from './ending';

export interface Surroundings {
  app: JupyterFrontEnd;
  trans: TranslationBundle;
  unit: () => Unit;
  store: Store;
}

export function actions({ app, trans, unit, store }: Surroundings): Required<Actions> {
  const { kernels, sessions, serverSettings } = app.serviceManager;
  const asked = new Asked(store);

  /** Ask for confirmation, act, and show a failure. */
  async function confirmed(row: Row, ask: { title: string; label: string; failed: string }, act: () => Promise<void>) {
    const answer = await showDialog({
      title: ask.title,
      body: ending(row, store.state, unit(), trans),
      buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.warnButton({ label: ask.label })],
      defaultButton: 0
    });
    if (!answer.button.accept) {
      return;
    }
    try {
      await act();
    } catch (error) {
      await failed(ask.failed, error);
    }
  }

  /**
   * Restart a kernel as its notebook's menu does where that is open here, so that none of its cells wait any more.
   * No server notifies other pages of a restart, and they would show a kernel that starts; an empty cell ends that.
   * It is sent by a connection that is made afterwards: the server may lose messages of one that outlived the restart.
   */
  async function restart(id: string): Promise<void> {
    const own = opened(app, id);
    await (own ? own.restart() : KernelAPI.restartKernel(id, serverSettings));
    const connection = kernels.connectTo({ model: { id, name: '' }, handleComms: false });
    try {
      await connection.requestExecute({ code: '', silent: true, store_history: false }).done;
    } finally {
      connection.dispose();
    }
  }

  async function shutDown(kernel: string): Promise<void> {
    await sessions.refreshRunning();
    for (const session of sessions.running()) {
      if (session.kernel?.id === kernel) {
        await sessions.shutdown(session.id);
        return;
      }
    }
    await kernels.shutdown(kernel);
  }

  /** End an isolated call: at first as Ctrl-C does; one that was asked before and still runs is killed. */
  async function stopCall(row: Row, pid: number): Promise<void> {
    const name = cut(row.owner, SHOWN);
    const kill = asked.has(pid);
    const answer = await showDialog({
      title: kill ? trans.__('Kill %1?', name) : trans.__('Stop %1?', name),
      body: kill
        ? trans.__('It was asked to stop, and still runs. What it has not saved is lost; its notebook goes on.')
        : trans.__('It is interrupted, as by Ctrl-C. Its notebook goes on, and keeps its variables.'),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.warnButton({ label: kill ? trans.__('Kill') : trans.__('Stop') })
      ],
      defaultButton: 0
    });
    if (!answer.button.accept) {
      return;
    }
    const url = URLExt.join(serverSettings.baseUrl, 'tfgpu-magic', 'stop');
    try {
      const body = JSON.stringify({ pid, kill });
      const request = { method: 'POST', body };
      const response = await asked.ask(pid, () => ServerConnection.makeRequest(url, request, serverSettings));
      if (!response.ok && response.status !== 404) {
        throw new ServerConnection.ResponseError(response); // 404: it has ended by itself
      }
    } catch (error) {
      await failed(trans.__('%1 was not stopped', name), error);
    }
  }

  return {
    open(row) {
      void app.commands
        .execute('docmanager:open', { path: row.path ?? '' })
        .catch((error: unknown) => failed(trans.__('%1 cannot be opened', cut(row.owner, SHOWN)), error));
    },
    restart(row) {
      const { kernel } = row;
      const name = cut(row.owner, SHOWN);
      if (kernel !== undefined) {
        const ask = {
          title: trans.__('Restart the kernel of %1?', name),
          label: trans.__('Restart'),
          failed: trans.__('The kernel of %1 was not restarted', name)
        };
        void confirmed(row, ask, () => restart(kernel));
      }
    },
    shutDown(row) {
      const { kernel } = row;
      const name = cut(row.owner, SHOWN);
      if (kernel !== undefined) {
        const ask = {
          title: trans.__('Shut down the kernel of %1?', name),
          label: trans.__('Shut Down'),
          failed: trans.__('The kernel of %1 was not shut down', name)
        };
        void confirmed(row, ask, () => shutDown(kernel));
      }
    },
    stop(row) {
      if (row.pid !== undefined) {
        void stopCall(row, row.pid);
      }
    }
  };
}

/** The connection to a kernel of a document or console that is open in this page. */
function opened(app: JupyterFrontEnd, id: string): Kernel.IKernelConnection | null {
  for (const widget of app.shell.widgets('main')) {
    const { context, sessionContext } = widget as { context?: Sessions; sessionContext?: Sessions['sessionContext'] };
    const kernel = (sessionContext ?? context?.sessionContext)?.session?.kernel;
    if (kernel?.id === id) {
      return kernel;
    }
  }
  return null;
}

interface Sessions {
  sessionContext?: { session?: Session.ISessionConnection | null };
}

/** Show an error as JupyterLab does. */
function failed(title: string, error: unknown): Promise<void> {
  return showErrorMessage(title, error instanceof Error ? error : String(error));
}
