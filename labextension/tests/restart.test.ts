// The promise of a restart: it ends, whatever becomes of the messages that follow it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { ask, send, START } from '../src/lab/choose/kernel';
import { restart } from '../src/lab/restart';

/** A page with a notebook on one kernel, which restarts; `own` is that notebook's connection, `fresh` any later one. */
function page(own: () => object, fresh: () => object): { app: JupyterFrontEnd; done: string[] } {
  const done: string[] = [];
  const connection = (name: string, execute: () => object): object => ({
    id: 'k',
    restart: () => done.push('restarted'),
    requestExecute: () => (done.push(name), execute()),
    dispose: () => done.push('disposed')
  });
  const widget = { sessionContext: { session: { kernel: connection('own', own) } } };
  const kernels = { connectTo: () => connection('fresh', fresh) };
  const app = { serviceManager: { kernels, serverSettings: {} }, shell: { widgets: () => [widget] } };
  return { app: app as unknown as JupyterFrontEnd, done };
}

const lost = (): object => ({ done: new Promise(() => undefined), dispose: () => undefined });
const answered = (): object => ({
  done: Promise.resolve({ content: { status: 'ok', user_expressions: {} } }),
  dispose: () => undefined
});

test('what the new kernel is asked goes by a connection made after the restart, and is all it is asked', async () => {
  const { app, done } = page(lost, answered);

  assert.equal((await restart(app, 'k', fresh => ask(fresh, 'state', ['']))).kind, 'failed');
  assert.deepEqual(done, ['restarted', 'fresh', 'disposed']);
});

test('a message that is lost holds nothing up for good', { timeout: 10_000 }, async t => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { app, done } = page(lost, lost);
  const restarting = restart(app, 'k', fresh => send(fresh, {}, START));
  await new Promise(setImmediate);
  t.mock.timers.tick(61_000);
  await restarting;

  assert.deepEqual(done, ['restarted', 'fresh', 'disposed']);
});
