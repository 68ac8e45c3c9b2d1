// Asks a server over HTTP why its stream cannot be opened.

import type { Answer } from './stream';

/** Milliseconds that an answer may take. */
const PATIENCE = 20_000;

/** @param get - requests a path below the server's base URL until a signal; it rejects without an answer. */
export async function ask(
  get: (path: string, until: AbortSignal) => Promise<Response>,
  patience = PATIENCE
): Promise<Answer> {
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
