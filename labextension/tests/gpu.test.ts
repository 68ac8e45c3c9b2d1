// The promises of a GPU's bar and sensors: it draws what was sent, the reader's own rows one by one.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ENGLISH } from '../src/view/format';
import { parts, sensors } from '../src/view/gpu';
import type { Gpu, Row } from '../src/view/wire';
import { GIB, gpu, row } from './make';

function drawn(rest: Partial<Gpu>, ...rows: Row[]): { parts: [string, number, number][]; whole: number } {
  const { parts: shown, whole } = parts(
    gpu(rest),
    rows.map((one, index) => ({ key: `${index}`, row: one }))
  );
  return { parts: shown.map(part => [part.what, part.size / GIB, part.count]), whole: whole / GIB };
}

const others = (size: number): NonNullable<Gpu['others']> => ({ text: 'others', size });

test("the reader's own rows have parts of their own, others one, as large as was sent", () => {
  const bar = drawn(
    { used: 6 * GIB, others: others(2 * GIB), free: 73 * GIB },
    row({ held: 4 * GIB }),
    row({ who: 'other', held: GIB })
  );

  assert.deepEqual(bar, {
    parts: [
      ['own', 4, 1],
      ['others', 2, 0],
      ['free', 73, 0]
    ],
    whole: 80
  });
});

test('a row of which nothing is known has no part', () => {
  assert.deepEqual(drawn({ used: 6 * GIB, others: others(6 * GIB), free: 74 * GIB }, row({ kind: 'C' })).parts, [
    ['others', 6, 0],
    ['free', 74, 0]
  ]);
});

test('many small notebooks are one part', () => {
  const rows = Array.from({ length: 200 }, () => row({ held: GIB / 8 }));

  assert.deepEqual(drawn({ used: 25 * GIB, free: 55 * GIB }, ...rows).parts, [
    ['small', 25, 200],
    ['free', 55, 0]
  ]);
});

test('parts that are more than the GPU has fill the bar', () => {
  assert.equal(drawn({ free: 0, others: others(50 * GIB) }, row({ held: 40 * GIB })).whole, 90);
});

test('a GPU says how much it is used and what its sensors tell, and what is not known is said to be', () => {
  assert.equal(
    sensors(gpu({ sensors: { utilisation: 37, temperature: 54, power: 61 } }), ENGLISH),
    'use 37% · 54 °C · 61 W'
  );
  assert.equal(sensors(gpu({ sensors: { utilisation: 0 } }), ENGLISH), 'use 0%');
  assert.equal(sensors(gpu(), ENGLISH), 'use N/A');
  assert.equal(sensors(gpu({ mig: true, sensors: { temperature: 54 } }), ENGLISH), '54 °C');
  assert.equal(sensors(gpu({ error: 'the GPU is lost' }), ENGLISH), '');
});
