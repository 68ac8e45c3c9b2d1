// The promise of a question by HTTP: it has an answer in bounded time, whoever is asked.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { refusal, refused } from '../src/lab/network';
import { saying } from '../src/lab/sentences';
import { ENGLISH, type Translation } from '../src/view/format';

test('a server that takes a question and never answers has not answered', { timeout: 10_000 }, async () => {
  const asked: string[] = [];
  const awake = setInterval(() => 0, 1000); // the deadline's own timer keeps no process alive
  const answer = await refusal((path, until) => {
    asked.push(path);
    return new Promise((_, reject) => until.addEventListener('abort', () => reject(new Error('too late'))));
  }, 5);
  clearInterval(awake);

  assert.deepEqual([answer, asked], [null, ['tfgpu-magic/snapshot']]);
});

test('why a request is refused is in the language of the page, and in English where the page or the server is older', async () => {
  const pseudo = saying<Translation>({ ...ENGLISH, __: (text, ...args) => `[${ENGLISH.__(text, ...args)}]` });
  const message = 'process 7 is not ended';
  const its = async (body: object | string): Promise<string> =>
    (await refused(new Response(JSON.stringify(body), { status: 404, statusText: 'None' }), pseudo)).message;

  assert.equal(await its({ message, said: ['process %1 is not ended', '7'] }), `[${message}]`);
  assert.deepEqual(
    [await its({ message }), await its({ message, said: ['process %1 rests', '7'] })],
    [message, message]
  );
  assert.match(await its('no object'), /404 None/);
});
