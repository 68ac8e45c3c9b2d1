// The promises of a choice's words: they ask for it whatever was asked before, and what was asked is found again.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ALL, cell, isCell, PICK, read, replaced, words, type Choice } from '../src/lab/choose/words';

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
  [{ gpu: PICK, memory: 'limit' }, 'pick --need 40%; limit 40%']
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

test('a refused line is replaced in its place, and only where it stands', () => {
  assert.equal(
    replaced('# why\n  %tf_gpu  limit 40% \nx = 1', '%tf_gpu limit 40%', '%tf_gpu growth'),
    '# why\n  %tf_gpu growth\nx = 1'
  );
  assert.equal(replaced('tf_gpu limit 40%', '%tf_gpu limit 40%', '%tf_gpu growth'), '%tf_gpu growth');
  assert.equal(replaced('%tf_gpu limit {part}', '%tf_gpu limit 40%', '%tf_gpu growth'), null);
  assert.equal(replaced('\nx = 1', '', '%tf_gpu growth'), null);
});

test('a line for above a cell comes first, and in place of such a line', () => {
  const above = '%%tf_gpu isolate -o x limit 2GiB';

  assert.equal(replaced('x = 1\ny = 2', '', above), `${above}\nx = 1\ny = 2`);
  assert.equal(replaced('%%gpu  isolate -o x limit 9GiB\nx = 1', '', above), `${above}\nx = 1`);
});
