// The promises of what is drawn: in which order, and which GPU is the fullest.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fullest, labels, nearlyFull, Sorter } from '../src/view/model';
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

test('the fullest GPU is the one with the largest part used, among those that tell', () => {
  const gpus = { 0: gpu({ used: 70, total: 100 }), 1: gpu({ used: 9, total: 10 }), 2: { name: 'lost' } };

  assert.equal(fullest(state({ gpus })), '1');
  assert.equal(fullest(state({ gpus: { 2: { name: 'lost' } } })), null);
  assert.equal(fullest(state({ gpus: { ...gpus, 3: gpu({ used: 1, total: 20, free: 1, unified: true }) } })), '3');
});

test('it stays so until another is clearly fuller', () => {
  const gpus = { 0: gpu({ used: 70, total: 100 }), 1: gpu({ used: 73, total: 100 }), 2: gpu({ used: 76, total: 100 }) };

  assert.equal(fullest(state({ gpus: { 0: gpus[0], 1: gpus[1] } }), '0'), '0');
  assert.equal(fullest(state({ gpus }), '0'), '2');
});

test('a GPU is nearly full where the viewer can have little more of it, by its memory or by a limit', () => {
  const figures = { name: 'A100', total: 80 * GIB, used: 30 * GIB, free: 50 * GIB };

  assert.equal(nearlyFull(figures), undefined);
  assert.equal(nearlyFull({ ...figures, used: 76 * GIB }), 95);
  assert.equal(nearlyFull({ ...figures, free: 2 * GIB, limit: 32 * GIB }), 93);
  assert.equal(nearlyFull({ ...figures, free: 20 * GIB, limit: 32 * GIB }), undefined);
  assert.equal(nearlyFull({ ...figures, free: 2 * GIB, unified: true }), 97); // by programs of the processor
});
