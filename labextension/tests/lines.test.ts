// The promises of the lines that a refusal offers: each is found where it stands whole, and put where it belongs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { places, replaced } from '../src/lab/lines';

const found = (text: string, ...lines: string[]): string[] =>
  places(text, lines).map(({ start, line }) => `${start} ${line}`);

test('lines are found in their order, each where it stands whole', () => {
  const text = 'Not applied.\nFits now:\n  %tf_gpu limit 1GiB\n  %tf_gpu pick; limit 1GiB';

  assert.deepEqual(found(text, '%tf_gpu pick; limit 1GiB', '%tf_gpu limit 1GiB'), [
    '25 %tf_gpu limit 1GiB',
    '46 %tf_gpu pick; limit 1GiB'
  ]);
});

test('a line that begins a longer one is not found in it', () => {
  const text = 'Say one of:\n  %tf_gpu growth\n  %tf_gpu growth off';

  assert.deepEqual(found(text, '%tf_gpu growth', '%tf_gpu growth off'), ['14 %tf_gpu growth', '31 %tf_gpu growth off']);
  assert.deepEqual(found('%tf_gpu limit 1GiB --grow', '%tf_gpu limit 1GiB'), []);
});

test('a remark beside a line and the end of a sentence end it', () => {
  assert.deepEqual(found('%tf_gpu growth --restart   (variables are lost)', '%tf_gpu growth --restart'), [
    '0 %tf_gpu growth --restart'
  ]);
  assert.deepEqual(found('Say %tf_gpu growth.', '%tf_gpu growth'), ['4 %tf_gpu growth']);
  assert.deepEqual(found('%tf_gpu limit 1GiBytes', '%tf_gpu limit 1GiB'), []);
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
