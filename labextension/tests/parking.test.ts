// The promises of parking in a row: what it says in every state, and which actions it offers when.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kernels } from '../src/lab/kernel-rows';
import { canPark, canStay, canUnpark, parkedDetail, parkedText } from '../src/view/parking';
import { stateText } from '../src/view/row';
import { ENGLISH } from '../src/view/format';
import type { Row } from '../src/view/wire';
import { GIB, row, state } from './make';

const SINCE = Date.now() / 1000;
const kernel = (rest: Partial<Row> = {}): Row =>
  row({ kernel: 'k', pid: 7, state: 'idle', held: GIB, parks: true, ...rest });
const parked = (rest: Partial<Row> = {}): Row =>
  kernel({ parking: 'parked', away: 9.8 * GIB, since: SINCE, held: 0, ...rest });

test('an idle kernel that allows it can be parked, and nothing else can', () => {
  const never: Partial<Row>[] = [
    { parks: undefined! },
    { kernel: undefined! },
    { pid: undefined! },
    { child: 'python3' },
    { state: 'busy' },
    { held: GIB / 8 },
    { held: undefined! },
    { parking: 'parked' },
    { parking: 'failed' }
  ];

  assert.ok(canPark(kernel()));
  assert.ok(canPark(kernel({ state: undefined! })));
  assert.deepEqual(
    never.filter(rest => canPark(kernel(rest))),
    []
  );
});

test('one that is parked can come back, and one that waits can stay', () => {
  const states = ['parking', 'parked', 'waiting', 'restoring', 'failed'] as const;

  assert.deepEqual(
    states.filter(parking => canUnpark(parked({ parking }))),
    ['parked']
  );
  assert.deepEqual(
    states.filter(parking => canStay(parked({ parking }))),
    ['waiting']
  );
  assert.ok(!canUnpark(parked({ kernel: undefined! })));
  assert.ok(!canStay(parked({ parking: 'waiting', state: 'busy' }))); // a cell of it waits, and is interrupted there
});

test('it says where its memory is, for how long, and for whom it waits', () => {
  assert.equal(stateText(parked({ unused: 1, active: 1 }), SINCE, ENGLISH), 'parked');
  assert.equal(stateText(parked(), SINCE + 7300, ENGLISH), 'parked 2 h');
  assert.equal(parkedText(kernel(), SINCE, ENGLISH), '');
  assert.equal(parkedDetail(kernel(), 'GiB', ENGLISH), '');
  assert.equal(parkedDetail(parked(), 'GiB', ENGLISH), '9.8 GiB in host memory');
  assert.equal(parkedDetail(parked({ disk: true }), 'GiB', ENGLISH), '9.8 GiB on disk');
  assert.equal(
    parkedDetail(parked({ parking: 'waiting', behind: 'b.ipynb' }), 'GiB', ENGLISH),
    '9.8 GiB in host memory; b.ipynb holds most of this GPU; to go on without it: %tf_gpu unpark --without-gpu'
  );
  assert.equal(parkedText(parked({ parking: 'failed' }), SINCE, ENGLISH), 'GPU state lost');
  assert.match(parkedDetail(parked({ parking: 'failed' }), 'GiB', ENGLISH), /lost: restart its kernel/);
  assert.match(parkedDetail(parked({ trouble: 'gone' }), 'GiB', ENGLISH), /GPU is not there now; .*--without-gpu/);
  assert.match(parkedDetail(parked({ trouble: 'hangs' }), 'GiB', ENGLISH), /driver does not answer; .*--without-gpu/);
});

test('the list of running kernels says what is parked', () => {
  const rows = { '0 7': parked(), '1 7': parked({ gpu: '1', away: GIB }) };

  assert.deepEqual(
    kernels(state({ time: SINCE, rows }), 'GiB', ENGLISH).map(({ text }) => text),
    ['10.8 GiB parked']
  );

  const job = {
    '0 8': parked({ pid: 8, child: 'python3', away: 2 * GIB }),
    '0 7': kernel(),
    '1 7': kernel({ gpu: '1' })
  };

  assert.deepEqual(
    kernels(state({ time: SINCE, rows: job }), 'GiB', ENGLISH).map(({ text }) => text),
    ['2.0 GiB, 2.0 GiB parked']
  );
});
