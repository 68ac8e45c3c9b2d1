// The promises of the figures: aligned, with a unit only where asked, and never nothing where there is something.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, cut, ENGLISH, figure, share, short, step, withUnit } from '../src/view/format';
import { GIB } from './make';

test('sizes have one decimal, and what is little is not nothing', () => {
  assert.equal(figure(48 * GIB, 'GiB'), '48.0');
  assert.equal(figure(31.24 * GIB, 'GiB'), '31.2');
  assert.equal(figure(0.04 * GIB, 'GiB'), '<0.1');
  assert.equal(figure(0, 'GiB'), '0.0');
  assert.equal(figure(GIB, 'GB'), '1.1');
  assert.equal(figure(GIB, 'MiB'), '1024');
  assert.equal(figure(1, 'MiB'), '<1');
});

test('a figure is the same one as in the tables of a cell, which Python rounds', () => {
  assert.deepEqual(
    [0.25, 0.75, 14.25, 0.251, 0.35].map(size => figure(size * GIB, 'GiB')),
    ['0.2', '0.8', '14.2', '0.3', '0.3']
  );
});

test('the unknown is N/A, and has no unit', () => {
  assert.equal(figure(undefined, 'GiB'), 'N/A');
  assert.equal(withUnit(undefined, 'GiB'), 'N/A');
  assert.equal(share(undefined, 80 * GIB, 'GiB'), 'N/A / 80 GiB');
});

test('a share says its unit once', () => {
  assert.equal(share(61.2 * GIB, 80 * GIB, 'GiB'), '61.2 / 80 GiB');
  assert.equal(share(1.5 * GIB, 15.5 * GIB, 'GiB'), '1.5 / 15.5 GiB');
});

test('a time that has passed is said in one unit', () => {
  assert.deepEqual(
    [0, 59, 60, 3599, 7300, 86400 * 1.5, 86400 * 3].map(seconds => ago(seconds, ENGLISH)),
    ['', '', '1 min', '59 min', '2 h', '36 h', '3 d']
  );
});

test('a long name is cut in its middle, and no character with it', () => {
  assert.equal(cut('abcdef', 6), 'abcdef');
  assert.equal(cut('abcdefgh', 5), 'ab…gh');
  assert.equal(cut('a😀😀😀😀b', 6), 'a…b');
});

test('a notebook is called by its file', () => {
  assert.equal(short('work/train.ipynb'), 'train');
  assert.equal(short('python'), 'python');
});

test('texts take their arguments in any order, and only once', () => {
  assert.equal(ENGLISH.__('%2 on %1', 'x', '%1'), '%1 on x');
  assert.equal(ENGLISH._n('%1 row', '%1 rows', 2), '2 rows');
  assert.equal(ENGLISH._n('%1 row', '%1 rows', 1), '1 row');
});

test('how long ago is written again whenever it is said otherwise, and seldom besides', () => {
  const times = Array.from({ length: 4 * 86400 }, (_, seconds) => seconds);
  const changes = (say: (seconds: number) => unknown): number[] =>
    times.filter(seconds => seconds && say(seconds) !== say(seconds - 1));
  const said = changes(seconds => ago(seconds, ENGLISH));
  const steps = changes(step);

  assert.ok(said.every(seconds => steps.includes(seconds)));
  assert.ok(steps.length < 60 + 4 * 24);
});
