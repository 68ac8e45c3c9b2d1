// The promise of what is remembered of calls that were asked to stop: it is of them, and of no others after them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Asked } from '../src/lab/asked';
import { History } from '../src/view/history';
import { Listeners } from '../src/view/store';
import type { Row } from '../src/view/wire';
import { row, state } from './make';

class FakeStore {
  listeners = 0;
  state = state({ rows: { '0 7': row({ pid: 7, call: true }), '0 8': row({ pid: 8, call: true }) } });
  history = new History();
  link = { kind: 'live' } as const;
  private all = new Listeners();
  subscribe = (changed: () => void): (() => void) => {
    const end = this.all.subscribe(changed);
    this.listeners += 1;
    return () => {
      this.listeners -= 1;
      end();
    };
  };
  show(...pids: number[]): void {
    this.state = state({ rows: Object.fromEntries(pids.map(pid => [`0 ${pid}`, call(pid)])) });
    this.all.tell();
  }
}

const call = (pid: number): Row => row({ pid, call: true });

function answers(status: number): () => Promise<Response> {
  return () => Promise.resolve(new Response(null, { status }));
}

test('a call that was asked to stop is known as long as it is there; who has its pid later was not asked', async () => {
  const store = new FakeStore();
  const asked = new Asked(store);
  await asked.ask(call(7), answers(204));
  await asked.ask(call(8), answers(204));
  store.show(7, 8, 9);
  const before = [7, 8, 9].map(pid => asked.has(call(pid)));
  store.show(8);
  const between = store.listeners;
  store.show();
  store.show(7, 8);

  assert.deepEqual(before, [true, true, false]);
  assert.deepEqual(
    [7, 8].map(pid => asked.has(call(pid))),
    [false, false]
  );
  assert.deepEqual([between, store.listeners], [1, 0]);
});

test('a call that the server was not told of, or did not stop, was not asked, and is not killed next', async () => {
  const store = new FakeStore();
  const asked = new Asked(store);
  await assert.rejects(asked.ask(call(7), () => Promise.reject(new TypeError('there is no network'))));
  const said = [(await asked.ask(call(8), answers(504))).status, (await asked.ask(call(8), answers(404))).status];

  assert.deepEqual(said, [504, 404]);
  assert.deepEqual([asked.has(call(7)), asked.has(call(8)), store.listeners], [false, false, 0]);
});

test('a process that has the pid of one that was asked, and so the same row, was not asked', async () => {
  const asked = new Asked(new FakeStore());
  await asked.ask(row({ pid: 7, began: 100 }), answers(204));

  assert.deepEqual(
    [100, 200].map(began => asked.has(row({ pid: 7, began }))),
    [true, false]
  );
});
