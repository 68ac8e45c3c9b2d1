// The path of the document that the reader is in, as it changes.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Contents } from '@jupyterlab/services';
import type { Widget } from '@lumino/widgets';

/** Tell the current document's path, now and at each change, as long as a widget is there. */
export function followCurrent(
  { shell, serviceManager }: JupyterFrontEnd,
  owner: Widget,
  told: (path: string | undefined) => void
): void {
  const tell = (): void => told(path(shell.currentWidget, serviceManager.contents));
  shell.currentChanged?.connect(tell);
  owner.disposed.connect(() => shell.currentChanged?.disconnect(tell));
  tell();
}

/** A document's widget has a context that knows its path; others have none. The server knows it without its drive. */
export function path(widget: unknown, contents: Pick<Contents.IManager, 'localPath'>): string | undefined {
  const context = (widget as { context?: { path?: unknown } } | null)?.context;
  return typeof context?.path === 'string' ? contents.localPath(context.path) : undefined;
}
