// The promises of what is drawn: order, whose the parts of a bar are, and which memory is worth asking back.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fullest, known, labels, parts, Sorter, spare } from '../src/view/model';
import type { Row } from '../src/view/wire';
import { GIB, gpu, row, state } from './make';

const ROWS = {
  a: row({ owner: 'run10.ipynb', held: 2, state: 'idle', active: 50 }),
  b: row({ owner: 'run9.ipynb', held: 3, state: 'busy', active: 10 }),
  c: row({ owner: 'Zed', held: 1, state: 'idle', active: 90 }),
  d: row({ owner: 'unknown' })
};

function order(by: 'held' | 'name' | 'activity', sorter = new Sorter()): string {
  const entries = sorter.sort(state({ rows: ROWS }), by).get('0') ?? [];
  return entries.map(entry => entry.key).join('');
}

test('rows are in the order asked for', () => {
  assert.equal(order('held'), 'bacd');
  assert.equal(order('name'), 'badc');
  assert.equal(order('activity'), 'bcad');
});

test('an order chosen later holds, and rows that are gone are gone', () => {
  const sorter = new Sorter();
  order('held', sorter);

  assert.equal(order('name', sorter), 'badc');
  assert.deepEqual(sorter.sort(state({ rows: { b: ROWS.b, e: row({ gpu: '1' }) } }), 'name').get('0'), [
    { key: 'b', row: ROWS.b }
  ]);
});

test('GPUs are in the order of their numbers, and instances below them', () => {
  const gpus = Object.fromEntries(['10', '2', '0.10', '0.9', '0'].map(label => [label, gpu()]));

  assert.deepEqual(labels(state({ gpus })), ['0', '0.9', '0.10', '2', '10']);
});

test('what is used and of no notebook of mine is of others', () => {
  const entries = [
    { key: 'a', row: row({ held: 4 * GIB }) },
    { key: 'b', row: row({ who: 'other', held: GIB }) }
  ];

  const { parts: shown, whole } = parts(gpu({ used: 6 * GIB, free: 73 * GIB }), entries);

  assert.deepEqual(
    shown.map(part => [part.what, part.size / GIB]),
    [
      ['own', 4],
      ['others', 2],
      ['free', 73]
    ]
  );
  assert.equal(whole, 80 * GIB);
});

test('where the driver lists no processes, notebooks have the part that they say themselves', () => {
  const told = row({ in_use: GIB, taken: 4 * GIB }); // what PyTorch has reserved counts too
  const listed = row({ kind: 'C', in_use: 4 * GIB }); // held is not told, as on WSL: what is in use is not all of it
  const sizes = (one: Row): [string, number][] =>
    parts(gpu({ used: 6 * GIB, free: 74 * GIB }), [{ key: 'a', row: one }]).parts.map(part => [
      part.what,
      part.size / GIB
    ]);

  assert.deepEqual(sizes(told), [
    ['own', 4],
    ['others', 2],
    ['free', 74]
  ]);
  assert.deepEqual(sizes(listed), [
    ['others', 6],
    ['free', 74]
  ]);
});

test('many small notebooks are one part', () => {
  const entries = Array.from({ length: 200 }, (_, index) => ({ key: `${index}`, row: row({ held: GIB / 10 }) }));

  const { parts: shown } = parts(gpu({ used: 20 * GIB, free: 60 * GIB }), entries);

  assert.deepEqual(
    shown.map(part => [part.what, part.count]),
    [
      ['small', 200],
      ['free', 0]
    ]
  );
});

test('memory is worth asking back where a notebook of mine has long been idle and keeps much', () => {
  const idle = row({ state: 'idle', active: 0, held: 10 * GIB, in_use: GIB });

  assert.equal(spare(idle, 300), 10 * GIB); // all of it, as the dialog says
  assert.equal(spare(idle, 299), 0);
  assert.equal(spare({ ...idle, state: 'busy' }, 300), 0);
  assert.equal(spare({ ...idle, who: 'other' }, 300), 0);
  assert.equal(spare({ ...idle, child: true }, 300), 0); // shutting down is the kernel's
  assert.equal(spare({ ...idle, torch_allocated: 8.9 * GIB }, 300), 0);
  assert.equal(spare({ ...row(idle), torch_allocated: GIB }, 300), 10 * GIB);
  assert.equal(spare({ ...idle, in_use: 9.9 * GIB }, 300), 0);
  assert.equal(spare(row({ state: 'idle', active: 0, held: 10 * GIB }), 300), 0);
});

test('the fullest GPU is the one with the largest part used, among those that tell', () => {
  const gpus = { 0: gpu({ used: 70, total: 100 }), 1: gpu({ used: 9, total: 10 }), 2: { name: 'lost' } };

  assert.equal(fullest(state({ gpus })), '1');
  assert.equal(fullest(state({ gpus: { 2: { name: 'lost' } } })), null);
});

test('it stays so until another is clearly fuller', () => {
  const gpus = { 0: gpu({ used: 70, total: 100 }), 1: gpu({ used: 73, total: 100 }), 2: gpu({ used: 76, total: 100 }) };

  assert.equal(fullest(state({ gpus: { 0: gpus[0], 1: gpus[1] } }), '0'), '0');
  assert.equal(fullest(state({ gpus }), '0'), '2');
});

test('a notebook of PyTorch alone has its own part where the driver lists no processes', () => {
  const torch = row({ torch_reserved: 22 * GIB, taken: 22 * GIB });

  const { parts: shown } = parts(gpu({ used: 24 * GIB, free: 56 * GIB }), [{ key: 'a', row: torch }]);

  assert.equal(known(torch), 22 * GIB);
  assert.deepEqual(
    shown.map(part => [part.what, part.size / GIB]),
    [
      ['own', 22],
      ['others', 2],
      ['free', 56]
    ]
  );
});
