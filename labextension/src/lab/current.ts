// The path of the user's current document, as it changes.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Contents } from '@jupyterlab/services';
import type { ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

/** Call back with the current document's path, now and at each change, until a widget is disposed of. */
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

/** The context of a document's widget, which has its path; other widgets have none. */
interface Context {
  path?: unknown;
  pathChanged?: ISignal<unknown, unknown>;
}

/** Return the path from the context of a document's widget, as the server has it: without its drive. */
export function path(widget: unknown, contents: Pick<Contents.IManager, 'localPath'>): string | undefined {
  const context = (widget as { context?: Context } | null)?.context;
  return typeof context?.path === 'string' ? contents.localPath(context.path) : undefined;
}
