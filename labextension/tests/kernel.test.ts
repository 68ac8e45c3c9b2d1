// The promises of a question to a kernel: it is silent, keeps nothing, and ends in bounded time, whatever happens there.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, isFree, literal, type Connection } from '../src/lab/choose/kernel';

class Fake {
  status = 'idle';
  asked: Record<string, unknown>[] = [];
  disposed = 0;
  constructor(private reply: Promise<unknown>) {}
  requestExecute(content: Record<string, unknown>): { done: Promise<unknown>; dispose: () => void } {
    this.asked.push(content);
    return { done: this.reply, dispose: () => (this.disposed += 1) };
  }
  get connection(): Connection {
    return this as unknown as Connection;
  }
}

const MIME = 'application/vnd.tfgpu-magic.answer+json';
const replying = (state: object): Fake =>
  new Fake(Promise.resolve({ content: { status: 'ok', user_expressions: { state } } }));

test('the answer is what the functions return, and the request leaves no trace', async () => {
  const kernel = replying({ status: 'ok', data: { [MIME]: { late: '' } } });
  const reply = await ask<{ state: object }>(kernel.connection, { state: 'state()' });

  assert.deepEqual(reply, { kind: 'answer', facts: { state: { late: '' } } });
  assert.deepEqual(kernel.asked, [
    {
      code: '',
      silent: true,
      store_history: false,
      stop_on_error: false,
      user_expressions: { state: '__import__("tfgpu_magic.chooser").chooser.state()' }
    }
  ]);
  assert.equal(kernel.disposed, 1);
});

test('a kernel without the package, one that fails and one that ends are told apart', async () => {
  const missing = replying({ status: 'error', ename: 'ModuleNotFoundError', evalue: "No module named 'tfgpu_magic'" });
  const failing = replying({ status: 'error', ename: 'OSError', evalue: 'no board' });
  const ended = new Fake(Promise.reject(new Error('Canceled')));
  const calls = { state: 'state()' };

  assert.deepEqual(await ask(missing.connection, calls), { kind: 'missing' });
  assert.deepEqual(await ask(failing.connection, calls), { kind: 'failed', reason: 'OSError: no board' });
  assert.deepEqual(await ask(ended.connection, calls), { kind: 'failed', reason: 'Canceled' });
});

test('one that does not answer in time is busy, and its answer is not waited for', { timeout: 10_000 }, async () => {
  const kernel = new Fake(new Promise(() => undefined));
  const reply = await ask<{ state: object }>(kernel.connection, { state: 'state()' }, 0.005);

  assert.deepEqual(reply, { kind: 'busy' });
  assert.equal(kernel.disposed, 1);
});

test('only an idle kernel would answer at once', () => {
  assert.ok(isFree({ status: 'idle' }));
  assert.ok(!isFree({ status: 'busy' }) && !isFree({ status: 'restarting' }) && !isFree({ status: 'unknown' }));
});

test('words are a text to Python, whatever is in them', () => {
  assert.equal(literal('limit "1" \\ \n'), '"limit \\"1\\" \\\\ \\n"');
});
