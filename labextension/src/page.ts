// The server of the page that a widget is in, whose address JupyterLab and Notebook write into their pages.

import { ask } from './lab/ask';
import type { World } from './lab/stream';

/** The stream's address; null on the page of another application. */
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

/** A stream's access to the network and timers. The page's cookie authenticates it, as it does its kernels. */
export function world(url: string): World {
  const at = (protocol: string, path: string): string => url.replace(/^(http|ws)/u, protocol) + path;
  return {
    connect: () => new WebSocket(at('ws', 'stream')),
    ask: () => ask(path => fetch(at('http', `../${path}`))),
    later(callback, milliseconds) {
      const timer = setTimeout(callback, milliseconds);
      return () => clearTimeout(timer);
    },
    random: Math.random
  };
}
