// The notebook at hand: which one it is, its kernel and that kernel's language. JupyterLab and Notebook 7 share it.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel } from '@jupyterlab/services';
import { Signal, type ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import type { Store } from '../view/store';
import type { Translation } from '../view/format';
import { kernelRow } from './restart';

/** The part of a cell's widget that is used; the types of `@jupyterlab/notebook` are not needed for it. */
export interface Cell extends Widget {
  model: { id: string; type: string; sharedModel: { getSource(): string; setSource(source: string): void } };
}

/** The part of a notebook's widget that is used. */
export interface NotebookPanel extends Widget {
  context: { path: string; sessionContext: ISessionContext };
  content: Widget & {
    activeCellIndex: number;
    deselectAll(): void;
    widgets: readonly Cell[];
    model: {
      sharedModel: {
        insertCell(index: number, cell: { cell_type: 'code'; source: string; metadata: object }): unknown;
      };
    } | null;
  };
}

export function asNotebook(widget: Widget | null): NotebookPanel | null {
  return widget?.hasClass('jp-NotebookPanel') ? (widget as NotebookPanel) : null;
}

export function kernelOf(notebook: NotebookPanel | null): Kernel.IKernelConnection | null {
  return notebook?.context.sessionContext.session?.kernel ?? null;
}

/** The name that a notebook has for its reader. */
export function nameOf(notebook: NotebookPanel): string {
  return notebook.context.path.replace(/^.*\//, '');
}

/** Why no policy can be chosen for the notebook at hand; empty where one can be. */
export function obstacle(
  { notebook, language }: Pick<AtHand, 'notebook' | 'language'>,
  trans: Translation,
  store: Pick<Store, 'state'>
): string {
  if (!notebook) {
    return trans.__('Open a notebook to set its GPU memory');
  }
  if (!language) {
    return trans.__('This notebook has no kernel yet');
  }
  if (language.toLowerCase() !== 'python') {
    return trans.__('This kernel runs %1, and tfgpu_magic is for Python', language);
  }
  // To ask its kernel would bring it back.
  const parking = kernelRow(store, kernelOf(notebook)?.id ?? '')?.parking;
  return parking === undefined || parking === 'failed'
    ? ''
    : trans.__('This notebook is parked: bring its memory back first');
}

/** The notebook at hand, as it changes, until a widget is disposed of. */
export class AtHand {
  constructor(
    private shell: JupyterFrontEnd.IShell,
    owner: Widget
  ) {
    shell.currentChanged?.connect(this.follow);
    owner.disposed.connect(() => {
      shell.currentChanged?.disconnect(this.follow);
      this.leave();
      Signal.clearData(this);
    });
    this.follow();
  }

  notebook: NotebookPanel | null = null;

  /** The language of its kernel; null while that is not known, and where there is no kernel. */
  language: string | null = null;

  get changed(): ISignal<this, void> {
    return this.signal;
  }

  private follow = (): void => {
    this.leave();
    this.notebook = asNotebook(this.shell.currentWidget);
    this.notebook?.context.sessionContext.kernelChanged.connect(this.ask);
    this.notebook?.title.changed.connect(this.tell);
    this.ask();
  };

  private leave(): void {
    this.notebook?.context.sessionContext.kernelChanged.disconnect(this.ask);
    this.notebook?.title.changed.disconnect(this.tell);
    this.notebook = null;
  }

  private ask = (): void => {
    const kernel = kernelOf(this.notebook);
    this.language = null;
    this.tell();
    // By its specification, which the server has: a busy kernel would not say.
    void kernel?.spec
      .then(spec => {
        if (kernelOf(this.notebook) === kernel) {
          this.language = spec?.language ?? null;
          this.tell();
        }
      })
      .catch(() => undefined); // a server that is gone
  };

  private tell = (): void => this.signal.emit();

  private signal = new Signal<this, void>(this);
}
