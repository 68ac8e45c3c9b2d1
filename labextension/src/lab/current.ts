// The path of the document that the reader is in, as it changes.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

/** Tell the current document's path, now and at each change, as long as a widget is there. */
export function followCurrent(
  shell: JupyterFrontEnd.IShell,
  owner: Widget,
  told: (path: string | undefined) => void
): void {
  let context: Context | undefined;
  const say = (): void => told(typeof context?.path === 'string' ? context.path : undefined);
  const tell = (): void => {
    context?.pathChanged?.disconnect(say); // a notebook that is renamed stays the current one
    context = (shell.currentWidget as { context?: Context } | null)?.context;
    context?.pathChanged?.connect(say);
    say();
  };
  shell.currentChanged?.connect(tell);
  owner.disposed.connect(() => {
    shell.currentChanged?.disconnect(tell);
    context?.pathChanged?.disconnect(say);
  });
  tell();
}

/** What a document's widget has, which knows its path; others have none. */
interface Context {
  path?: unknown;
  pathChanged?: ISignal<unknown, unknown>;
}
