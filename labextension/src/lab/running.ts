// A section of JupyterLab's list of what is running: the kernels that hold GPU memory, how much, and since when unused.

import type { IRunningSessions } from '@jupyterlab/running';
import { notebookIcon } from '@jupyterlab/ui-components';
import { Signal } from '@lumino/signaling';
import { identity, kernels, type KernelMemory } from './kernel-rows';
import { chipIcon, type IGpuMemory } from './tokens';

export class RunningMemory implements IRunningSessions.IManager {
  constructor(private memory: IGpuMemory) {
    const { trans } = memory;
    this.name = trans.__('GPU Memory');
    this.shutdownAllConfirmationText = trans.__(
      'Shut down all kernels that hold GPU memory? Their variables are lost.'
    );
    memory.stream.subscribe(() => {
      const items = this.items();
      const shown = items.map(identity).join('\n');
      if (shown !== this.shown) {
        this.shown = shown;
        this.list.splice(0, Infinity, ...items.map(one => this.item(one)));
        this.runningChanged.emit();
      }
    });
  }

  readonly name: string;
  readonly shutdownAllConfirmationText: string;
  readonly runningChanged = new Signal<this, void>(this);

  /** The list as it is, always the same one: JupyterLab asks before there are figures, and draws that when it can. */
  running(): IRunningSessions.IRunningItem[] {
    return this.list;
  }

  refreshRunning(): void {
    // The server sends what changes.
  }

  shutdownAll(): void {
    const { kernels } = this.memory.app.serviceManager;
    this.items().forEach(({ row }) => void kernels.shutdown(row.kernel!));
  }

  private items(): KernelMemory[] {
    const { stream, settings, trans } = this.memory;
    const { state, link } = stream;
    return state && !state.error && link.kind === 'live' ? kernels(state, settings.now.unit, trans) : [];
  }

  private item({ row, text }: KernelMemory): IRunningSessions.IRunningItem {
    return {
      className: 'tfgpu-running',
      icon: () => notebookIcon,
      label: () => row.owner,
      labelTitle: () => `${row.owner}: ${text}`,
      children: [{ icon: () => chipIcon, label: () => text }], // beside the name there is no room
      ...(row.path !== undefined && { open: () => this.memory.actions.open(row) }),
      shutdown: () => this.memory.actions.shutDown(row)
    };
  }

  private list: IRunningSessions.IRunningItem[] = [];
  private shown = '';
}
