// The promises of a choice's words: they ask for it whatever was asked before, and what was asked is found again. Those of
// its sizes: what is shown in bytes and in percent is the same, and no more than there is.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  ALL,
  allowed,
  bound,
  bytes,
  cell,
  converted,
  isCell,
  measure,
  most,
  PICK,
  read,
  words,
  type Choice
} from '../src/lab/choose/choice';
import { GIB } from './make';

const USUAL: Choice = { gpu: ALL, memory: 'growth', amount: 40, unit: '%', grow: false, release: false };
const NOTHING = { policy: '', chooses: false };

const cases: [Partial<Choice>, string][] = [
  [{}, 'growth'],
  [{ memory: 'everything' }, 'default'],
  [{ release: true }, 'growth --release'],
  [{ gpu: PICK, release: true }, 'pick; growth --release'],
  [{ gpu: '0.1' }, 'visible 0.1; growth'],
  [{ gpu: PICK }, 'pick; growth'],
  [{ memory: 'limit', amount: 1.3, unit: 'GiB' }, 'limit 1.3GiB'],
  [{ gpu: '3', memory: 'limit', grow: true }, 'visible 3; limit 40% --grow'],
  [{ gpu: PICK, memory: 'limit' }, 'pick; limit 40%']
];

for (const [changed, text] of cases) {
  test(`"${text}" is asked for by a choice, and read as it`, () => {
    const choice = { ...USUAL, ...changed };

    assert.equal(words(choice, NOTHING), text);
    assert.deepEqual(read(text, USUAL), choice);
  });
}

test('what was asked before is taken back where the choice is another', () => {
  const before = { policy: 'visible 0; limit 1GiB', chooses: true };

  assert.equal(words(USUAL, before), 'visible all; growth');
  assert.equal(words({ ...USUAL, memory: 'everything' }, before), 'default');
  assert.equal(words({ ...USUAL, gpu: '1', memory: 'everything' }, before), 'default; visible 1');
});

test('a policy that cannot be chosen by hand is not read as another', () => {
  for (const text of ['split 2', 'limit 0=1GiB', 'limit 1GiB; limit 1=2GiB', 'visible 0,1', 'visible none', 'pick 2']) {
    assert.equal(read(text, USUAL), null, text);
  }
});

test('a cell with the words is known again, and no other is', () => {
  assert.equal(cell('growth'), '%load_ext tfgpu_magic\n%gpu growth');
  assert.equal(cell('split 2'), '%load_ext tfgpu_magic\n%tf_gpu split 2');
  assert.ok(isCell(cell('visible 1; limit 4GiB')));
  assert.ok(!isCell('%load_ext tfgpu_magic'));
  assert.ok(!isCell(`${cell('growth')}\nimport tensorflow`));
});

const big = { label: '0', total: 80 * GIB, free: 1 * GIB };
const small = { label: '1', total: 15.75 * GIB, free: 15 * GIB };
const lost = { label: '2', error: 'the GPU is lost' };
const all = [big, small, lost];
const half: Choice = { gpu: '1', memory: 'limit', amount: 50, unit: '%', grow: false, release: false };

test('all GPUs are measured by where least fits, a pick by where most does, and a GPU without figures by none', () => {
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

test('no amount is more than a ceiling leaves', () => {
  const gpu = { label: '0', total: 8 * GIB, most: 491 * 2 ** 20 }; // 6%, in whole MiB

  assert.equal(most(gpu, '%'), 6);
  assert.equal(most(gpu, 'GiB'), 0.4);
  assert.equal(allowed(40, '%', gpu), 6);
  assert.equal(most({ ...gpu, most: 307 * 2 ** 20 }, 'GiB'), 0.3);
  assert.equal(most({ ...gpu, most: 5.5 * GIB }, '%'), 68);
});

test('no amount is more than what fits, and where nothing does, a wish is no other one', () => {
  const gpu = { label: '0', total: 8 * GIB, fits: 1.78 * GIB };
  const [capped, full] = [
    { ...gpu, most: 491 * 2 ** 20 },
    { ...gpu, fits: 0 }
  ];

  assert.deepEqual([most(gpu, '%'), most(gpu, 'GiB'), allowed(40, '%', gpu)], [22, 1.7, 22]);
  assert.deepEqual([most(capped, '%'), most(full, '%'), allowed(40, '%', full)], [6, 100, 40]);
  assert.deepEqual(
    [gpu, capped, full, { ...gpu, fits: 8 * GIB }].map(one => bound(one, 'GiB')),
    ['fits', 'ceiling', null, 'fits']
  );
  assert.equal(measure([gpu, { ...small, fits: GIB }], ALL)?.label, '1');
});

test('no amount is more than there is, or nothing', () => {
  assert.equal(most(small, 'GiB'), 15.7);
  assert.deepEqual(
    [allowed(99, 'GiB', small), allowed(0, 'GiB', small), allowed(1.25, 'GiB', small)],
    [15.7, 0.1, 1.3]
  );
  assert.deepEqual([allowed(120, '%', big), allowed(0.2, '%', big), allowed(33.4, '%', null)], [100, 1, 33]);
});
