// The promises of a question to a kernel: it is silent, keeps nothing, and ends in bounded time, whatever happens there.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, isFree, restart, wake, type Connection } from '../src/lab/kernel';

class Fake {
  status = 'idle';
  asked: Record<string, unknown>[] = [];
  disposed = 0;
  constructor(
    private reply: Promise<unknown>,
    private idle = true
  ) {}
  requestExecute(content: Record<string, unknown>): object {
    this.asked.push(content);
    const future = { onReply: (reply: unknown): unknown => reply, dispose: () => (this.disposed += 1) };
    const done = this.reply.then(reply => {
      future.onReply(reply);
      return this.idle ? reply : new Promise(() => undefined);
    });
    return Object.assign(future, { done });
  }
  get connection(): Connection {
    return this as unknown as Connection;
  }
}

const MIME = 'application/vnd.tfgpu-magic.answer+json';
const replying = (answer: object, { idle } = { idle: true }): Fake =>
  new Fake(Promise.resolve({ content: { status: 'ok', user_expressions: { answer } } }), idle);

test('the answer is what the function returns, and the request leaves no trace', async () => {
  const kernel = replying({ status: 'ok', data: { [MIME]: { late: '' } } });
  const reply = await ask(kernel.connection, 'state', ['']);

  assert.deepEqual(reply, { kind: 'answer', facts: { late: '' } });
  assert.deepEqual(kernel.asked, [
    {
      code: '',
      silent: true,
      store_history: false,
      stop_on_error: false,
      user_expressions: { answer: '__import__("tfgpu_magic.notebook.chooser").notebook.chooser.state("")' }
    }
  ]);
  assert.equal(kernel.disposed, 1);
});

test('a kernel without the package, one that fails and one that ends are told apart', async () => {
  const missing = replying({ status: 'error', ename: 'ModuleNotFoundError', evalue: "No module named 'tfgpu_magic'" });
  const failing = replying({ status: 'error', ename: 'OSError', evalue: 'no board' });
  const ended = new Fake(Promise.reject(new Error('Canceled')));
  const aborted = new Fake(Promise.resolve({ content: { status: 'aborted' } }));

  assert.deepEqual(await ask(missing.connection, 'state', ['']), { kind: 'missing' });
  assert.deepEqual(await ask(failing.connection, 'state', ['']), { kind: 'failed', reason: 'OSError: no board' });
  assert.deepEqual(await ask(ended.connection, 'state', ['']), { kind: 'failed', reason: 'Canceled' });
  assert.deepEqual(await ask(aborted.connection, 'state', ['']), { kind: 'failed', reason: 'aborted' });
});

test('one that does not answer in time is busy, and its answer is not waited for', { timeout: 10_000 }, async () => {
  const kernel = new Fake(new Promise(() => undefined));
  const reply = await ask(kernel.connection, 'state', [''], 0.005);

  assert.deepEqual(reply, { kind: 'busy' });
  assert.equal(kernel.disposed, 1);
});

test(
  'a reply is the answer, though the message that the kernel is idle again is lost',
  { timeout: 10_000 },
  async () => {
    const kernel = replying({ status: 'ok', data: { [MIME]: { late: '' } } }, { idle: false });
    const reply = await ask(kernel.connection, 'state', [''], 0.05);

    assert.deepEqual(reply, { kind: 'answer', facts: { late: '' } });
    assert.equal(kernel.disposed, 1);
  }
);

test('only an idle kernel would answer at once', () => {
  assert.ok(isFree({ status: 'idle' }));
  assert.ok(!isFree({ status: 'busy' }) && !isFree({ status: 'restarting' }) && !isFree({ status: 'unknown' }));
});

test('words are a text to Python, whatever is in them, and a time is a number', async () => {
  const kernel = replying({});
  await ask(kernel.connection, 'apply', ['limit "1" \\ \n', 12.5]);

  const { answer } = kernel.asked[0]!['user_expressions'] as { answer: string };
  assert.ok(answer.endsWith('.apply("limit \\"1\\" \\\\ \\n", 12.5)'), answer);
});

/** A page with a notebook on one kernel, which restarts; `own` is that notebook's connection, `fresh` any later one. */
function page(own: () => object, fresh: () => object): { memory: Parameters<typeof restart>[0]; done: string[] } {
  const done: string[] = [];
  const connection = (name: string, execute: () => object): object => ({
    id: 'k',
    restart: () => done.push('restarted'),
    requestExecute: () => (done.push(name), execute()),
    dispose: () => done.push('disposed')
  });
  const notebook = { sessionContext: { session: { kernel: connection('own', own) } } };
  const notebooks = { find: (whether: (one: unknown) => boolean) => [notebook].find(whether) };
  const kernels = { connectTo: () => connection('fresh', fresh) };
  const app = { serviceManager: { kernels, serverSettings: {} } };
  return { memory: { app, notebooks, consoles: null } as never, done };
}

const lost = (): object => ({ done: new Promise(() => undefined), dispose: () => undefined });
const answered = (): object => ({
  done: Promise.resolve({ content: { status: 'ok', user_expressions: {} } }),
  dispose: () => undefined
});

test('what the new kernel is asked goes by a connection made after the restart, and is all it is asked', async () => {
  const { memory, done } = page(lost, answered);

  assert.equal((await restart(memory, 'k', fresh => ask(fresh, 'state', ['']))).kind, 'failed');
  assert.deepEqual(done, ['restarted', 'fresh', 'disposed']);
});

test('a message that is lost holds nothing up for good', { timeout: 10_000 }, async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { memory, done } = page(lost, lost);
  const restarting = restart(memory, 'k', wake);
  await new Promise(setImmediate);
  t.mock.timers.tick(61_000);
  await restarting;

  assert.deepEqual(done, ['restarted', 'fresh', 'disposed']);
});

test('a kernel that ends before it answers was restarted all the same', async () => {
  const ended = (): object => ({ done: Promise.reject(new Error('Canceled')), dispose: () => undefined });
  const { memory, done } = page(lost, ended);
  await restart(memory, 'k', wake);

  assert.deepEqual(done, ['restarted', 'fresh', 'disposed']);
});
