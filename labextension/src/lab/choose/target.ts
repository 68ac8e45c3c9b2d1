// The notebook whose memory is chosen: one that is open in this page, or another one by its kernel.

import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import type { ISignal } from '@lumino/signaling';
import { kernelOf, nameOf } from '../current';
import { send, START } from '../kernel';
import { kernelRow } from '../kernel-rows';
import type { IGpuMemory } from '../tokens';

export interface Target {
  name: string;
  path: string;
  kernel: () => Kernel.IKernelConnection | null;
  statusChanged: ISignal<unknown, Kernel.Status>;
  /** Null where it is not open in this page. */
  notebook: NotebookPanel | null;
  dispose: () => void;
}

export function opened(notebook: NotebookPanel): Target {
  return {
    name: nameOf(notebook),
    path: notebook.context.path,
    kernel: () => kernelOf(notebook),
    statusChanged: notebook.sessionContext.statusChanged,
    notebook,
    dispose: () => undefined
  };
}

/** The notebook of a kernel of this server; where it is not open here, through a connection of its own. */
export function ofKernel({ app, notebooks, stream }: IGpuMemory, id: string): Target {
  const notebook = notebooks?.find(one => kernelOf(one)?.id === id);
  if (notebook) {
    return opened(notebook);
  }
  const kernel = app.serviceManager.kernels.connectTo({ model: { id, name: '' }, handleComms: false });
  void learnState(kernel).catch(() => undefined); // a kernel that has ended
  const { statusChanged } = kernel;
  const { owner = id, path = owner } = kernelRow(stream, id) ?? {};
  return { name: owner, path, kernel: () => kernel, statusChanged, notebook: null, dispose: () => kernel.dispose() };
}

/** Have a new connection learn its kernel's state by what that does next; its first messages may be lost. */
async function learnState(kernel: Kernel.IKernelConnection): Promise<void> {
  await kernel.info; // once it answers
  while (!kernel.isDisposed && kernel.status === 'unknown') {
    await send(kernel, {}, START);
  }
}
