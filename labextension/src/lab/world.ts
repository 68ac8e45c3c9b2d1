// The network and timers of a stream: this page's Jupyter server and the browser's timers.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { ask } from './ask';
import type { World } from './stream';

export function world(settings: ServerConnection.ISettings): World {
  return {
    connect() {
      const query = settings.appendToken && settings.token ? `?token=${encodeURIComponent(settings.token)}` : '';
      return new settings.WebSocket(URLExt.join(settings.wsUrl, 'tfgpu-magic', 'stream') + query);
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
