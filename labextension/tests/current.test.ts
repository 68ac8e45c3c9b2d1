// The promise of the current document's path: it is the one that the server knows.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { path } from '../src/lab/current';

const contents = { localPath: (name: string) => name.replace(/^\w+:/, '') };

test('a document of another drive, as of collaboration, has the path that its session has', () => {
  assert.equal(path({ context: { path: 'RTC:work/train.ipynb' } }, contents), 'work/train.ipynb');
  assert.equal(path({ context: { path: 'train.ipynb' } }, contents), 'train.ipynb');
  assert.equal(path({}, contents), undefined);
  assert.equal(path(null, contents), undefined);
});
