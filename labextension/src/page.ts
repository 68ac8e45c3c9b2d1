// The server of the page that a widget is in: JupyterLab and Notebook write into their pages where it is.

import { ask } from './lab/ask';
import type { World } from './lab/stream';

/** Where the stream is; null on a page of something else. */
export function server(page: Document): string | null {
  try {
    const config = JSON.parse(page.getElementById('jupyter-config-data')?.textContent ?? '{}') as Record<
      string,
      string
    >;
    const { baseUrl, wsUrl } = config;
    return baseUrl ? new URL('tfgpu-magic/', new URL(wsUrl || baseUrl, page.location.href)).href : null;
  } catch {
    return null;
  }
}

/** The world outside of a stream. The page's cookie lets it in, as it does its kernels. */
export function world(url: string): World {
  const at = (protocol: string, path: string): string => url.replace(/^(http|ws)/u, protocol) + path;
  return {
    connect: every => new WebSocket(at('ws', `stream?every=${every}`)),
    ask: () => ask(path => fetch(at('http', `../${path}`))),
    later(callback, milliseconds) {
      const timer = setTimeout(callback, milliseconds);
      return () => clearTimeout(timer);
    },
    random: Math.random
  };
}
