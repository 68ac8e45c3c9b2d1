// The promises of a row's state: what its process does, and for how long it has not used its GPU.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sensors } from '../src/view/gpu';
import { canEnd, stateText, unusedText } from '../src/view/row';
import type { Row } from '../src/view/wire';
import { ENGLISH } from '../src/view/format';
import { gpu, row } from './make';

const text = (rest: Partial<Row>): string => stateText(row(rest), 10_000, ENGLISH);

test('it is unused for so long, which is more than idle, and less than busy', () => {
  assert.equal(text({ state: 'idle', active: 9000 }), 'idle 16 min');
  assert.equal(text({ state: 'idle', active: 9000, unused: 2800 }), 'unused 2 h');
  assert.equal(text({ unused: 2800 }), 'unused 2 h');
  assert.equal(text({ state: 'busy', unused: 2800 }), 'busy');
  assert.equal(text({ state: 'idle', active: 9000, unused: 9950 }), 'idle 16 min');
  assert.equal(text({ who: 'gone', unused: 2800 }), '');
  assert.equal(text({ unused: 2800, figures: { JAX: {}, TensorFlow: { 'in use': 1, peak: 9 } } }), 'unused 2 h');
  assert.equal(unusedText(row({ state: 'busy', unused: 2800 }), 10_000, ENGLISH), 'unused 2 h');
});

test('where nothing was ever made, as on the other GPUs of a notebook at work, that is said once', () => {
  const never = { unused: 2800, figures: { TensorFlow: { 'in use': 0, peak: 0 } } };

  assert.equal(text({ ...never, state: 'idle', active: 9000 }), 'idle 16 min');
  assert.equal(unusedText(row({ ...never, state: 'busy' }), 10_000, ENGLISH), '');
});

test('a GPU says how much it is used and what its sensors tell, and what is not known is said to be', () => {
  assert.equal(sensors(gpu({ utilisation: 37, temperature: 54, power: 61 }), ENGLISH), 'use 37% · 54 °C · 61 W');
  assert.equal(sensors(gpu({ utilisation: 0 }), ENGLISH), 'use 0%');
  assert.equal(sensors(gpu(), ENGLISH), 'use N/A');
  assert.equal(sensors(gpu({ mig: true, temperature: 54 }), ENGLISH), '54 °C');
  assert.equal(sensors(gpu({ error: 'the GPU is lost' }), ENGLISH), '');
});

test('a script can be ended, and what is parked; what draws a desktop cannot', () => {
  const ends = (kind?: string): boolean => canEnd(row({ pid: 7, began: 1, who: 'mine', ...(kind && { kind }) }));

  assert.deepEqual([ends('C'), ends('C+G'), ends(), ends('G')], [true, true, true, false]);
});
