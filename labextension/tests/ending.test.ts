// The promises of an end: what comes back, what is lost and whose else it is, is said before; and what is remembered of
// calls that were asked to stop is of them, and of no others after them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Asked, ending, endingProcess } from '../src/lab/ending';
import { ENGLISH } from '../src/view/format';
import { History } from '../src/view/history';
import { Listeners } from '../src/view/store';
import type { Row } from '../src/view/wire';
import { GIB, gpu, row, state } from './make';

const its = state({
  gpus: { 0: gpu(), 10: gpu(), 2: gpu() },
  rows: {
    '0 1': row({ kernel: 'k', held: GIB }),
    '10 1': row({ gpu: '10', kernel: 'k', held: GIB }),
    '2 1': row({ gpu: '2', kernel: 'k', held: 2 * GIB }),
    '2 2': row({ gpu: '2', kernel: 'k', child: 'python3' }),
    '0 2': row({ kernel: 'k', child: 'python3', held: GIB }),
    '0 3': row({ kernel: 'other', held: 7 * GIB })
  }
});

test('what a kernel gives back is what it and its processes hold, GPU by GPU, where that is known', () => {
  assert.equal(
    ending(row({ kernel: 'k', state: 'busy' }), its, 'GiB', ENGLISH),
    'It is busy. 2.0 GiB on GPU 0, 2.0 GiB on GPU 2, 1.0 GiB on GPU 10 come back. Its variables are lost.'
  );
  assert.equal(ending(row({ kernel: 'k' }), null, 'GiB', ENGLISH), 'Its variables are lost.');
});

test('of a kernel that several documents share it is said whose variables are lost too', () => {
  const said = ending(row({ kernel: 'k', also: ['b.ipynb', `${'c'.repeat(500)}.py`] }), null, 'GiB', ENGLISH);

  assert.match(
    said,
    /^Its variables are lost\. It is also the kernel of b\.ipynb, c+…c+\.py, whose variables are lost as well\.$/
  );
  assert.ok(said.length < 200);
});

test('of a process that no server knows it is said what it is, what it holds, and what becomes of it', () => {
  const orphan = row({ pid: 4711, began: 5, held: GIB });
  const there = state({ rows: { '0 4711': orphan, '0 9': row({ pid: 9, held: 7 * GIB }) } });
  const means = { unit: 'GiB', trans: ENGLISH, kill: false } as const;

  assert.equal(
    endingProcess(orphan, there, means),
    'It is process 4711 of this machine, and no kernel of this server. 1.0 GiB on GPU 0 come back. What it has not saved is lost.'
  );
  assert.match(
    endingProcess({ ...orphan, state: 'busy' }, there, means),
    /another server may be using it\. It is busy\./
  );
  assert.match(endingProcess(orphan, there, { ...means, kill: true }), /^It was asked to end, and still runs\./);
});

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
