// The page's one connection to its server, which the plugin offers to the live tables that the page draws.

import type { Stream } from './lab/stream';
import type { Store } from './view/store';
import { VERSION } from './view/wire';

/** What a table uses of the stream. It comes with the server's package, and the table with the kernel's. */
export type Shared = Store & Pick<Stream, 'want' | 'trans'>;

const NAME = Symbol.for(`tfgpu-magic/stream-${VERSION}`);

const page = globalThis as { [NAME]?: Shared };

export function offer(stream: Shared): void {
  page[NAME] = stream;
}

/** The page's stream; null where nobody offers one, as outside JupyterLab and Notebook. */
export function offered(): Shared | null {
  return page[NAME] ?? null;
}
