// The promises of a row: what its process does, and for how long it has not used its GPU; and in its second line what is
// known, in few words, and no figure without a unit.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ENGLISH, type Translation } from '../src/view/format';
import { canEnd, facts, heldText, stateText, unusedText, waits } from '../src/view/row';
import type { Row } from '../src/view/wire';
import { GIB, row } from './make';

const text = (rest: Partial<Row>): string => stateText(row(rest), 10_000, ENGLISH);

test("a kernel that starts does so in the page's language", () => {
  const trans: Translation = { ...ENGLISH, __: text => `[${text}]` };

  assert.equal(stateText(row({ state: 'starting' }), 10_000, trans), '[starting]');
});

test('it is unused for so long, which is more than idle, and less than busy', () => {
  assert.equal(text({ state: 'idle', active: 9000 }), 'idle 16 min');
  assert.equal(text({ state: 'idle', active: 9000, unused: 2800 }), 'unused 2 h');
  assert.equal(text({ state: 'debugging' }), 'debugging'); // a kernel's own word
  assert.equal(text({ unused: 2800 }), 'unused 2 h');
  assert.equal(text({ state: 'busy', unused: 2800 }), 'busy');
  assert.equal(text({ state: 'idle', active: 9000, unused: 9950 }), 'idle 16 min');
  assert.equal(text({ state: 'idle', active: 9000, unused: 9020 }), 'unused 16 min');
  assert.equal(text({ state: 'idle', active: 2800, unused: 9880 }), 'idle 2 h'); // nobody looked meanwhile
  assert.equal(text({ who: 'gone', unused: 2800 }), '');
  assert.equal(text({ unused: 2800, figures: { JAX: {}, TensorFlow: { 'in use': 1, peak: 9 } } }), 'unused 2 h');
  assert.equal(unusedText(row({ state: 'busy', unused: 2800 }), 10_000, ENGLISH), 'unused 2 h');
});

test('where nothing was ever made, as on the other GPUs of a notebook at work, that is said once', () => {
  const never = { unused: 2800, figures: { TensorFlow: { 'in use': 0, peak: 0 } } };

  assert.equal(text({ ...never, state: 'idle', active: 9000 }), 'idle 16 min');
  assert.equal(unusedText(row({ ...never, state: 'busy' }), 10_000, ENGLISH), '');
});

test('a notebook waits for room until it has it, and both are said with the time, how much it needs, and no 0.0 that it holds', () => {
  const said = (rest: Partial<Row>): string => line({ ...rest });
  const needs = 6.4 * GIB;

  assert.match(said({ waits: 9000 }), /^waits for room, since .*:30$/);
  assert.match(said({ waits: 9000, until: 10800, needs }), /^waits for 6.4 GiB, until .*:00$/);
  assert.match(said({ waits: 9000, until: 10800, needs, any_gpu: true }), /^waits for 6.4 GiB on any GPU, until/);
  assert.match(said({ waits: 9000, room: 9900 }), /^has had room since/);
  assert.equal(heldText(row({ waits: 9000, held: 0 }), 'GiB'), '');
  assert.equal(heldText(row({ waits: 9000, held: GIB }), 'GiB'), '1.0 GiB');
  assert.deepEqual(
    [waits(row({ waits: 9000 })), waits(row({ waits: 9000, room: 9900 })), waits(row({}))],
    [true, false, false]
  );
});

test('a script can be ended, and what the driver does not list; what draws a desktop cannot', () => {
  const ends = (kind?: string): boolean => canEnd(row({ pid: 7, began: 1, who: 'mine', ...(kind && { kind }) }));

  assert.deepEqual([ends('C'), ends('C+G'), ends(), ends('G')], [true, true, true, false]);
});

test('whether a process can be ended follows from whose it is, whatever it is called', () => {
  const names = ['this notebook', 'others', 'a process that ended', 'train.ipynb'];
  const whose = ['this', 'mine', 'other', 'gone', 'unknown'] as const;

  for (const owner of names) {
    const ended = whose.filter(who => canEnd(row({ pid: 7, began: 1, who, owner })));

    assert.deepEqual(ended, ['mine']);
  }
});

const MIB = 2 ** 20;

function line(rest: Partial<Row>): string {
  return facts(row(rest), 'GiB', ENGLISH)
    .map(fact => fact.filter(Boolean).join(' '))
    .join(', ');
}

function tensorflow(inUse: number, peak: number): Partial<Row> {
  return { figures: { TensorFlow: { 'in use': inUse, peak } } };
}

test('it has the figures in the unit that stands above, and the policy', () => {
  assert.equal(
    line({
      policy: 'limit 48 GiB',
      figures: {
        PyTorch: { allocated: GIB, reserved: 2 * GIB },
        TensorFlow: { 'in use': 31.2 * GIB, peak: 44.9 * GIB }
      }
    }),
    'in use 31.2, peak 44.9, limit 48 GiB, PyTorch allocated 1.0, reserved 2.0'
  );
  assert.equal(line({}), '');
});

test('what is too small for that unit has one of its own', () => {
  assert.equal(line(tensorflow(1280, 12 * MIB)), 'in use <1 MiB, peak 12 MiB');
  assert.equal(line(tensorflow(0, GIB)), 'in use 0.0, peak 1.0');
});

test('a GPU on which nothing was ever made says so in two words', () => {
  assert.equal(line({ ...tensorflow(0, 0), policy: 'growth' }), 'never used, growth');
});

test('it says how much of its GPU a process uses', () => {
  assert.equal(line({ utilisation: 37 }), 'use 37%');
  assert.equal(line({ utilisation: 0 }), '');
});

test('it says how much of it is parked, and how long it took to come back', () => {
  const parked: Partial<Row> = {
    parked: { size: 12 * GIB },
    held: GIB / 2,
    kind: 'C',
    figures: { PyTorch: { allocated: 0 } }
  };

  assert.equal(line({ ...parked, policy: 'growth' }), 'parked: 12 GiB in host memory, 0.5 GiB stay, growth');
  assert.equal(
    line({ ...parked, ...tensorflow(0, GIB) }),
    'parked: 12 GiB in host memory, 0.5 GiB stay, in use 0.0, peak 1.0'
  );
  assert.equal(line({ ...parked, kind: undefined! }), 'parked: 12 GiB in host memory'); // what the driver does not list has its context, too
  assert.equal(text({ ...parked, unused: 2800 }), 'unused 2 h');
  assert.equal(line({ parked: { back: 3.2 } }), 'back in 3.2 s');
  assert.equal(line({ parked: { back: 125 } }), 'back in 2 min');
});

test('a framework that nobody had heard of says what it says under its own name', () => {
  const figures = { Novum: { pooled: 3 * GIB, 'handed out': GIB }, Idle: { pooled: 0 } };

  assert.equal(line({ figures }), 'Novum pooled 3.0, handed out 1.0, Idle never used');
});
