// The promises of the sentences before a kernel's end: what comes back, what is lost, and whose else it is.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ending, endingProcess } from '../src/lab/ending';
import { ENGLISH } from '../src/view/format';
import { GIB, gpu, row, state } from './make';

const its = state({
  gpus: { 0: gpu(), 10: gpu(), 2: gpu() },
  rows: {
    '0 1': row({ kernel: 'k', held: GIB }),
    '10 1': row({ gpu: '10', kernel: 'k', held: GIB }),
    '2 1': row({ gpu: '2', kernel: 'k', held: 2 * GIB }),
    '2 2': row({ gpu: '2', kernel: 'k', child: true }),
    '0 2': row({ kernel: 'k', child: true, held: GIB }),
    '0 3': row({ kernel: 'other', held: 7 * GIB })
  }
});

test('what a kernel gives back is what it and its processes hold, GPU by GPU, where that is known', () => {
  assert.equal(
    ending(row({ kernel: 'k', state: 'busy' }), its, 'GiB', ENGLISH),
    'It is busy. 2.0 GiB on GPU 0, 2.0 GiB on GPU 2, 1.0 GiB on GPU 10 come back. Its variables are lost.'
  );
  assert.equal(ending(row({ kernel: 'k' }), null, 'GiB', ENGLISH), 'Its variables are lost.');
});

test('of a kernel that several documents share it is said whose variables are lost too', () => {
  const said = ending(row({ kernel: 'k', also: ['b.ipynb', `${'c'.repeat(500)}.py`] }), null, 'GiB', ENGLISH);

  assert.match(
    said,
    /^Its variables are lost\. It is also the kernel of b\.ipynb, c+…c+\.py, whose variables are lost as well\.$/
  );
  assert.ok(said.length < 200);
});

test('of a process that no server knows it is said what it is, what it holds, and what becomes of it', () => {
  const orphan = row({ pid: 4711, began: 5, held: GIB });
  const there = state({ rows: { '0 4711': orphan, '0 9': row({ pid: 9, held: 7 * GIB }) } });
  const means = { unit: 'GiB', trans: ENGLISH, kill: false } as const;

  assert.equal(
    endingProcess(orphan, there, means),
    'It is process 4711 of this machine, and no kernel of this server. 1.0 GiB on GPU 0 come back. What it has not saved is lost.'
  );
  assert.match(
    endingProcess({ ...orphan, state: 'busy' }, there, means),
    /another server may be using it\. It is busy\./
  );
  assert.match(endingProcess(orphan, there, { ...means, kill: true }), /^It was asked to end, and still runs\./);
});
