// The document and the notebook that the user sees, as they change: the path, the kernel and that kernel's language.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IDocumentManager } from '@jupyterlab/docmanager';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import { Signal, type ISignal } from '@lumino/signaling';
import type { Translation } from '../view/format';

/** Call back with the current document's path on the server, now and at each change; undefined where there is none. */
export function followDocument(
  shell: Pick<JupyterFrontEnd.IShell, 'currentWidget' | 'currentChanged'>,
  documents: Pick<IDocumentManager, 'contextForWidget'>,
  told: (path: string | undefined) => void
): void {
  let context: ReturnType<IDocumentManager['contextForWidget']>;
  const tell = (): void => told(context?.localPath);
  const follow = (): void => {
    context?.pathChanged.disconnect(tell); // a notebook that is renamed stays the current one
    context = shell.currentWidget ? documents.contextForWidget(shell.currentWidget) : undefined;
    context?.pathChanged.connect(tell);
    tell();
  };
  shell.currentChanged?.connect(follow);
  follow();
}

export function kernelOf(notebook: NotebookPanel | null): Kernel.IKernelConnection | null {
  return notebook?.sessionContext.session?.kernel ?? null;
}

/** The name that a notebook has for its reader. */
export function nameOf(notebook: NotebookPanel): string {
  return notebook.context.path.replace(/^.*\//, '');
}

/** Why no policy can be chosen for the notebook at hand; empty where one can be. */
export function obstacle(
  { notebook, language }: Pick<CurrentNotebook, 'notebook' | 'language'>,
  trans: Translation
): string {
  if (!notebook) {
    return trans.__('Open a notebook to set its GPU memory');
  }
  if (!language) {
    return trans.__('This notebook has no kernel yet');
  }
  return language.toLowerCase() === 'python'
    ? ''
    : trans.__('This kernel runs %1, and tfgpu_magic is for Python', language);
}

/** The notebook that the user sees, as it changes. */
export class CurrentNotebook {
  constructor(
    private shell: Pick<JupyterFrontEnd.IShell, 'currentWidget' | 'currentChanged'>,
    private notebooks: Pick<INotebookTracker, 'find'> | null
  ) {
    shell.currentChanged?.connect(this.follow);
    this.follow();
  }

  notebook: NotebookPanel | null = null;

  /** The language of its kernel; null while that is not known, and where there is no kernel. */
  language: string | null = null;

  get changed(): ISignal<this, void> {
    return this.signal;
  }

  private follow = (): void => {
    this.notebook?.sessionContext.kernelChanged.disconnect(this.ask);
    this.notebook?.context.pathChanged.disconnect(this.tell);
    this.notebook = this.notebooks?.find(notebook => notebook === this.shell.currentWidget) ?? null;
    this.notebook?.sessionContext.kernelChanged.connect(this.ask);
    this.notebook?.context.pathChanged.connect(this.tell);
    this.ask();
  };

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
