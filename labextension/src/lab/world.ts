// The network and timers of a stream: this page's Jupyter server and the browser's timers.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { ask } from './ask';
import type { World } from './stream';

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
    ask: () =>
      ask((path, signal) => ServerConnection.makeRequest(URLExt.join(settings.baseUrl, path), { signal }, settings)),
    later(callback, milliseconds) {
      const timer = window.setTimeout(callback, milliseconds);
      return () => window.clearTimeout(timer);
    },
    random: Math.random
  };
}
