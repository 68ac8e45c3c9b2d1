// The panel's actions on a notebook: open, restart or shut it down, stop a call; and to end other processes.

import { Dialog, Notification, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import { KernelAPI, ServerConnection } from '@jupyterlab/services';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { cut } from '../view/format';
import { waits } from '../view/row';
import type { Row } from '../view/wire';
import { kernelOf, nameOf } from './current';
import { Asked, ending, endingProcess, SHOWN } from './ending';
import { restart, wake } from './kernel';
import { rowOf } from './kernel-rows';
import { post } from './network';
import type { IGpuMemory } from './tokens';

export function actions(memory: Omit<IGpuMemory, 'actions' | 'open'>): IGpuMemory['actions'] {
  const { app, trans, stream, settings } = memory;
  const { kernels, sessions, serverSettings } = app.serviceManager;
  const asked = new Asked(stream);

  /** Ask for confirmation, act, and show a failure. */
  async function confirmed(
    row: Row,
    ask: { title: string; label: string; failed: string },
    act: () => Promise<unknown>
  ) {
    if (!(await confirm(ask, ending(row, stream.state, settings.now.unit, trans), trans))) {
      return;
    }
    try {
      await act();
    } catch (error) {
      await failed(ask.failed, error);
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
    const kill = asked.has(row);
    const ask = {
      title: kill ? trans.__('Kill %1?', name) : trans.__('Stop %1?', name),
      label: kill ? trans.__('Kill') : trans.__('Stop')
    };
    const lost = kill
      ? trans.__('It was asked to stop, and still runs. What it has not saved is lost; its notebook goes on.')
      : trans.__('It is interrupted, as by Ctrl-C. Its notebook goes on, and keeps its variables.');
    if (!(await confirm(ask, lost, trans))) {
      return;
    }
    try {
      const response = await asked.ask(row, () => post(serverSettings, 'stop', { pid, kill }));
      if (!response.ok && response.status !== 404) {
        throw await ServerConnection.ResponseError.create(response); // 404: it has ended by itself
      }
    } catch (error) {
      await failed(trans.__('%1 was not stopped', name), error);
    }
  }

  /** End a process that no server here knows: at first it is asked to end, and killed if it still runs after that. */
  async function endProcess(row: Row, pid: number, began: number): Promise<void> {
    const name = cut(row.owner, SHOWN);
    const kill = asked.has(row);
    const ask = {
      title: kill ? trans.__('Kill %1?', name) : trans.__('End %1?', name),
      label: kill ? trans.__('Kill') : trans.__('End')
    };
    if (!(await confirm(ask, endingProcess(row, stream.state, { unit: settings.now.unit, trans, kill }), trans))) {
      return;
    }
    try {
      const response = await asked.ask(row, () => post(serverSettings, 'end', { pid, began, kill }));
      if (response.status === 404) {
        Notification.info(trans.__('%1 has ended by itself: nothing was done.', name), { autoClose: 5000 });
      } else if (!response.ok) {
        throw await ServerConnection.ResponseError.create(response);
      }
    } catch (error) {
      await failed(trans.__('%1 was not ended', name), error);
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
        void confirmed(row, ask, () => restart(memory, kernel, wake));
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
      const { kernel } = row;
      if (kernel !== undefined && waits(row)) {
        const title = trans.__('The wait of %1 was not ended', cut(row.owner, SHOWN));
        KernelAPI.interruptKernel(kernel, serverSettings).catch((error: unknown) => failed(title, error));
      } else if (row.pid !== undefined) {
        void stopCall(row, row.pid);
      }
    },
    end(row) {
      if (row.pid !== undefined && row.began !== undefined) {
        void endProcess(row, row.pid, row.began);
      }
    }
  };
}

/** Ask whether a notebook's kernel may be restarted, and say what is lost. */
export function confirmRestart(notebook: NotebookPanel, memory: IGpuMemory): Promise<boolean> {
  const { trans, stream, settings } = memory;
  const row = rowOf(memory, kernelOf(notebook)?.id ?? '', notebook.context.path);
  const title = trans.__('Restart the kernel of %1?', cut(nameOf(notebook), SHOWN));
  return confirm({ title, label: trans.__('Restart') }, ending(row, stream.state, settings.now.unit, trans), trans);
}

async function confirm(
  ask: { title: string; label: string },
  body: string,
  trans: TranslationBundle
): Promise<boolean> {
  const answer = await showDialog({
    title: ask.title,
    body,
    buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.warnButton({ label: ask.label })],
    defaultButton: 0
  });
  return answer.button.accept;
}

/** Show an error as JupyterLab does. */
export function failed(title: string, error: unknown): Promise<void> {
  return showErrorMessage(title, error instanceof Error ? error : String(error));
}
