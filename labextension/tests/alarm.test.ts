// The promises of the alarm: one word for each time that a GPU fills up.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Alarm } from '../src/lab/news';
import type { Row, State } from '../src/view/wire';
import { GIB, gpu, row, state } from './make';

const filled = (percent: number, rest: Partial<Row> = {}): State =>
  state({
    gpus: { 0: gpu({ used: percent, total: 100 }), 1: { name: 'lost' } },
    rows: { '0 7': row({ kernel: 'k', pid: 7, state: 'idle', held: GIB, ...rest }) }
  });

test('it tells once, until the GPU has emptied by five points', () => {
  const alarm = new Alarm();

  const told = [80, 90, 95, 86, 91, 84, 90].map(percent => alarm.check(filled(percent), 90).join());

  assert.deepEqual(told, ['', '0', '', '', '', '', '0']);
});

test('a GPU that was full before is no news, also where another percentage is chosen', () => {
  const alarm = new Alarm();

  const told = [95, 96, 80, 95].map(percent => alarm.check(filled(percent), 90).join());

  assert.deepEqual(told, ['', '', '', '0']);
  assert.deepEqual(alarm.check(filled(95), 80), []);
  assert.deepEqual(alarm.check(filled(70), 60), []); // it was full by this measure too
});

test('a GPU that fills up while another percentage is chosen is told', () => {
  const alarm = new Alarm();
  alarm.check(filled(10), 90);

  assert.deepEqual(alarm.check(filled(75), 60), ['0']);
});

test('a GPU that fills up while everybody works is told once a notebook there is idle', () => {
  const alarm = new Alarm();
  alarm.check(filled(10), 90);

  const told = [{ state: 'busy' }, { active: 950 }, {}, {}].map(rest => alarm.check(filled(95, rest), 90).length);

  assert.deepEqual(told, [0, 0, 1, 0]);
});

test('zero is never', () => {
  assert.deepEqual(new Alarm().check(filled(100), 0), []);
});

test('it is told only where a notebook of this server holds memory there and has been idle for a minute', () => {
  const told = [{}, { state: 'busy' }, { kernel: undefined! }, { gpu: '1' }, { held: 1 }, { active: 950 }].map(rest => {
    const alarm = new Alarm();
    alarm.check(filled(10, rest), 90);
    return alarm.check(filled(95, rest), 90).length;
  });

  assert.deepEqual(told, [1, 0, 0, 0, 0, 0]);
});
