// The promise of the lines that a refusal offers: each is found where it stands whole, and only there.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { places } from '../src/lab/places';

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
