// The promise of a question by HTTP: it has an answer in bounded time, whoever is asked.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { refusal } from '../src/lab/network';

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
