// The promises of the slider's sizes: what is shown in bytes and in percent is the same, and no more than there is.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allowed, bytes, converted, measure, most } from '../src/lab/choose/amounts';
import { ALL, PICK, type Choice } from '../src/lab/choose/words';
import { GIB } from './make';

const big = { label: '0', total: 80 * GIB, free: 1 * GIB };
const small = { label: '1', total: 15.75 * GIB, free: 15 * GIB };
const lost = { label: '2', error: 'the GPU is lost' };
const all = [big, small, lost];
const half: Choice = { gpu: '1', memory: 'limit', amount: 50, unit: '%', grow: false, release: false };

test('all GPUs are measured by the smallest, a pick by the freest, and a GPU without figures by none', () => {
  assert.equal(measure(all, ALL), small);
  assert.equal(measure(all, PICK), small);
  assert.equal(measure(all, '0'), big);
  assert.equal(measure(all, '2'), null);
  assert.equal(measure([], ALL), null);
});

test('another unit is the same size, in its steps', () => {
  assert.equal(bytes(half, small), 7.875 * GIB);
  assert.deepEqual(converted(half, 'GiB', small), { ...half, unit: 'GiB', amount: 7.9 });
  assert.deepEqual(converted({ ...half, unit: 'GiB', amount: 4 }, '%', big), { ...half, amount: 5 });
  assert.deepEqual(converted(half, 'GiB', null), { ...half, unit: 'GiB' });
});

test('no amount is more than there is, or nothing', () => {
  assert.equal(most(small, 'GiB'), 15.7);
  assert.deepEqual(
    [allowed(99, 'GiB', small), allowed(0, 'GiB', small), allowed(1.25, 'GiB', small)],
    [15.7, 0.1, 1.3]
  );
  assert.deepEqual([allowed(120, '%', big), allowed(0.2, '%', big), allowed(33.4, '%', null)], [100, 1, 33]);
});
