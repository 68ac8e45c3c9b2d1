// The promises of the lines that a refusal offers: each is put where it belongs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { replaced } from '../src/lab/lines';

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
