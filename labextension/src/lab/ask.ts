// What a server answers over HTTP where its stream does not come about: the figures, or why there are none.

import type { Answer } from './stream';

/** @param get - asks for a path below the server's base URL; it rejects where nobody answers. */
export async function ask(get: (path: string) => Promise<Response>): Promise<Answer> {
  try {
    const answer = await get('tfgpu-magic/snapshot');
    if (answer.ok) {
      return { text: await answer.text() };
    }
    if (answer.status === 401 || answer.status === 403) {
      return (await get('api/me')).ok ? 'not allowed' : 'not logged in';
    }
    // In place of a server that is stopped, what is before it may answer so.
    return answer.status === 404 && (await get('api/me')).status !== 404 ? 'not there' : null;
  } catch {
    return null; // there is no server: it will be tried again
  }
}
