// What a server answers over HTTP where its stream does not come about: the figures, or why there are none.

import type { Answer } from './stream';

/** Milliseconds that an answer may take; after that there is none. */
const PATIENCE = 20_000;

/** @param get - asks for a path below the server's base URL until a signal; it rejects where nobody answers. */
export async function ask(
  get: (path: string, until: AbortSignal) => Promise<Response>,
  patience = PATIENCE
): Promise<Answer> {
  const until = AbortSignal.timeout(patience);
  try {
    const answer = await get('tfgpu-magic/snapshot', until);
    if (answer.ok) {
      return { text: await answer.text() };
    }
    if (answer.status === 401 || answer.status === 403) {
      return (await get('api/me', until)).ok ? 'not allowed' : 'not logged in';
    }
    // In place of a server that is stopped, what is before it may answer so.
    return answer.status === 404 && (await get('api/me', until)).status !== 404 ? 'not there' : null;
  } catch {
    return null; // there is no server, or it does not answer: it will be tried again
  }
}
