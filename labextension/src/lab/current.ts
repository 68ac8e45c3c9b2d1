// The path of the document that the reader is in, as it changes.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Contents } from '@jupyterlab/services';
import type { ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

/** Tell the current document's path, now and at each change, as long as a widget is there. */
export function followCurrent(
  { shell, serviceManager }: JupyterFrontEnd,
  owner: Widget,
  told: (path: string | undefined) => void
): void {
  let context: Context | undefined;
  const say = (): void => told(path({ context }, serviceManager.contents));
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

/** A document's widget has a context that knows its path; others have none. The server knows it without its drive. */
export function path(widget: unknown, contents: Pick<Contents.IManager, 'localPath'>): string | undefined {
  const context = (widget as { context?: Context } | null)?.context;
  return typeof context?.path === 'string' ? contents.localPath(context.path) : undefined;
}
