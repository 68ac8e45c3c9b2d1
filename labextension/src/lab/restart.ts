// Restarts a kernel, for the panel's button and for a policy that needs a new one; and says first what that costs.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { KernelAPI, type Kernel, type Session } from '@jupyterlab/services';
import type { Store } from '../view/store';
import type { Row } from '../view/wire';

/**
 * Restart a kernel as its notebook's menu does where that is open here, so that none of its cells wait any more.
 * No server notifies other pages of a restart, and they would show a kernel that starts; a message to it ends that.
 * It is sent by a connection that is made afterwards: the server may lose messages of one that outlived the restart.
 *
 * @param first - sends that message, and waits for a limited time.
 */
export async function restart<T>(
  app: JupyterFrontEnd,
  id: string,
  first: (kernel: Kernel.IKernelConnection) => Promise<T>
): Promise<T> {
  const { kernels, serverSettings } = app.serviceManager;
  const own = opened(app, id);
  await (own ? own.restart() : KernelAPI.restartKernel(id, serverSettings));
  const connection = kernels.connectTo({ model: { id, name: '' }, handleComms: false });
  try {
    return await first(connection);
  } finally {
    connection.dispose();
  }
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

/** A kernel's row as it is now; undefined where it holds nothing. */
export function kernelRow(store: Pick<Store, 'state'>, kernel: string): Row | undefined {
  return Object.values(store.state?.rows ?? {}).find(row => row.kernel === kernel && !row.child);
}

/** A kernel's row; one that holds nothing has none, and is given one with the other documents on it. */
export function rowOf(app: JupyterFrontEnd, store: Store, kernel: string, path: string): Row {
  const there = kernelRow(store, kernel);
  const also = [...app.serviceManager.sessions.running()]
    .filter(session => session.kernel?.id === kernel && session.path !== path)
    .map(session => session.name || session.path);
  return there ?? { gpu: '', who: 'mine', owner: path, kernel, ...(also.length ? { also } : {}) };
}
