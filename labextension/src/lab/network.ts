// This page's Jupyter server: the stream's network, with timers, and why it opens no stream.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { Network, Refusal } from './stream';

export function network(settings: ServerConnection.ISettings): Network {
  return {
    connect() {
      const query = settings.appendToken && settings.token ? `?token=${encodeURIComponent(settings.token)}` : '';
      return new settings.WebSocket(URLExt.join(settings.wsUrl, 'tfgpu-magic', 'stream') + query);
    },
    refusal: () => refusal((path, signal) => request(settings, path, { signal })),
    later(callback, milliseconds) {
      const timer = window.setTimeout(callback, milliseconds);
      return () => window.clearTimeout(timer);
    },
    random: Math.random
  };
}

/** Request a path below the server's base URL. */
export function request(settings: ServerConnection.ISettings, path: string, init: RequestInit): Promise<Response> {
  return ServerConnection.makeRequest(URLExt.join(settings.baseUrl, path), init, settings);
}

/** Post a body as JSON to a path of our server extension. */
export function post(settings: ServerConnection.ISettings, what: string, body: object): Promise<Response> {
  return request(settings, `tfgpu-magic/${what}`, { method: 'POST', body: JSON.stringify(body) });
}

/** Milliseconds that an answer may take. */
const PATIENCE = 20_000;

/**
 * Ask why a stream cannot be opened.
 *
 * @param get - requests a path below the server's base URL until a signal; it rejects without an answer.
 */
export async function refusal(
  get: (path: string, until: AbortSignal) => Promise<Response>,
  patience = PATIENCE
): Promise<Refusal> {
  const until = AbortSignal.timeout(patience);
  try {
    const answer = await get('tfgpu-magic/snapshot', until);
    if (answer.ok) {
      return null; // it would open one: what closed it may be a proxy, or have passed
    }
    if (answer.status === 401 || answer.status === 403) {
      return (await get('api/me', until)).ok ? 'not allowed' : 'not logged in';
    }
    // A proxy may answer so in place of a server that is stopped.
    return answer.status === 404 && (await get('api/me', until)).status !== 404 ? 'not there' : null;
  } catch {
    return null; // there is no server, or it does not answer: the stream tries again
  }
}
