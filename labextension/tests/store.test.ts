// The promises of the merge patch: RFC 7386's own examples, and that what is not touched stays itself.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { merge, reuse } from '../src/view/store';

const EXAMPLES: [unknown, unknown, unknown][] = [
  [{ a: 'b' }, { a: 'c' }, { a: 'c' }],
  [{ a: 'b' }, { b: 'c' }, { a: 'b', b: 'c' }],
  [{ a: 'b' }, { a: null }, {}],
  [{ a: 'b', b: 'c' }, { a: null }, { b: 'c' }],
  [{ a: ['b'] }, { a: 'c' }, { a: 'c' }],
  [{ a: 'c' }, { a: ['b'] }, { a: ['b'] }],
  [{ a: { b: 'c' } }, { a: { b: 'd', c: null } }, { a: { b: 'd' } }],
  [{ a: [{ b: 'c' }] }, { a: [1] }, { a: [1] }],
  [
    ['a', 'b'],
    ['c', 'd'],
    ['c', 'd']
  ],
  [{ a: 'b' }, ['c'], ['c']],
  [{ a: 'foo' }, null, null],
  [{ a: 'foo' }, 'bar', 'bar'],
  [{ e: null }, { a: 1 }, { e: null, a: 1 }],
  [[1, 2], { a: 'b', c: null }, { a: 'b' }],
  [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }]
];

test('it does what the RFC says', () => {
  for (const [target, patch, expected] of EXAMPLES) {
    assert.deepEqual(merge(target, patch), expected);
  }
});

test('what it is given stays as it was', () => {
  const target = { a: { b: 1 }, c: [1] };

  merge(target, { a: { b: 2, d: 3 }, c: null });

  assert.deepEqual(target, { a: { b: 1 }, c: [1] });
});

test('what the patch does not change is the same object', () => {
  const target = { rows: { x: { held: 1 }, y: { held: 2 } }, gpus: {} };

  const after = merge(target, { rows: { x: { held: 3 }, y: { held: 2 } } }) as typeof target;

  assert.notEqual(after.rows.x, target.rows.x);
  assert.equal(after.rows.y, target.rows.y);
  assert.equal(after.gpus, target.gpus);
  assert.equal(merge(target, { rows: { x: { held: 1 } }, gone: null }), target);
});

test('a key with a strange name is a key like others', () => {
  const after = merge({}, JSON.parse('{"__proto__": {"held": 1}, "constructor": 2}')) as Record<string, unknown>;

  assert.deepEqual(Object.keys(after), ['__proto__', 'constructor']);
  assert.equal(Object.getPrototypeOf(after), Object.prototype);
});

test('of a whole state too, what is as it was is the same object', () => {
  const before = { rows: { x: { held: 1 }, y: { held: 2 } }, gpus: { 0: { used: 1 } }, notes: ['a'] };
  const after = { rows: { x: { held: 3 }, y: { held: 2 } }, gpus: { 0: { used: 1 } }, notes: ['a'] };

  const shared = reuse(before, after) as typeof before;

  assert.deepEqual(shared, after);
  assert.equal(shared.rows.y, before.rows.y);
  assert.equal(shared.gpus, before.gpus);
  assert.equal(shared.notes, before.notes);
  assert.equal(reuse(before, structuredClone(before)), before);
  assert.deepEqual(reuse({ a: 1, b: 2 }, { a: 1 }), { a: 1 });
});
