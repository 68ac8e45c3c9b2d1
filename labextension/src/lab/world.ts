// The world outside of a stream: this page's Jupyter server and the browser's timers.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { Answer, World } from './stream';

export function world(settings: ServerConnection.ISettings): World {
  return {
    connect(every) {
      const query: Record<string, string> = { every: `${every}` };
      if (settings.appendToken && settings.token) {
        query['token'] = settings.token;
      }
      const url = URLExt.join(settings.wsUrl, 'tfgpu-magic', 'stream') + URLExt.objectToQueryString(query);
      return new settings.WebSocket(url);
    },
    async ask(): Promise<Answer> {
      const get = (...path: string[]): Promise<Response> =>
        ServerConnection.makeRequest(URLExt.join(settings.baseUrl, ...path), {}, settings);
      try {
        const answer = await get('tfgpu-magic', 'snapshot');
        if (answer.ok) {
          return { text: await answer.text() };
        }
        if (answer.status === 401 || answer.status === 403) {
          return (await get('api', 'me')).ok ? 'not allowed' : 'not logged in';
        }
        // In place of a server that is stopped, what is before it may answer so.
        return answer.status === 404 && (await get('api', 'me')).status !== 404 ? 'not there' : null;
      } catch {
        return null; // there is no server: it will be tried again
      }
    },
    later(callback, milliseconds) {
      const timer = window.setTimeout(callback, milliseconds);
      return () => window.clearTimeout(timer);
    },
    random: Math.random
  };
}
