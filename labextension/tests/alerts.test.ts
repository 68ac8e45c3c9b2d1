// The promises of the notifications: one word for each time that a GPU fills up; one of memory that is held without use,
// to its owner, and silence where asked.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Alarm, Reminder, sentence, type Idle, type Keeper } from '../src/lab/alerts';
import { identity, kernels, unused } from '../src/lab/kernel-rows';
import type { Row, State } from '../src/view/wire';
import { ENGLISH } from '../src/view/format';
import { GIB, gpu, row, state } from './make';

const NOW = 1_800_000_000;
const HOUR = 3600;

class FakeKeeper implements Keeper {
  kept = new Map<string, string>();
  getItem(key: string): string | null {
    return this.kept.get(key) ?? null;
  }
  setItem(key: string, value: string): void {
    this.kept.set(key, value);
  }
}

function holds(rest: Partial<Row> = {}): Row {
  return row({ kernel: 'k', pid: 7, state: 'idle', held: 10 * GIB, unused: NOW - 2 * HOUR, ...rest });
}

function seen(rows: Row[], time = NOW): State {
  return state({ time, rows: Object.fromEntries(rows.map(one => [`${one.gpu} ${one.pid}`, one])) });
}

function told(reminder: Reminder, rows: Row[], time = NOW, hours = 2): (string | undefined)[] {
  return reminder.check(seen(rows, time), hours).map(one => one.row.kernel);
}

test('it tells once, and again when the notebook has used its GPU in between', () => {
  const reminder = new Reminder(new FakeKeeper());

  assert.deepEqual(told(reminder, [holds({ unused: NOW - 2 * HOUR + 1 })]), []);
  assert.deepEqual(told(reminder, [holds()]), ['k']);
  assert.deepEqual(told(reminder, [holds()], NOW + HOUR), []);
  assert.deepEqual(told(reminder, [holds({ unused: NOW + HOUR })], NOW + 3 * HOUR), ['k']);
});

test('another page of the same browser does not tell it again', () => {
  const keeper = new FakeKeeper();

  assert.deepEqual(told(new Reminder(keeper), [holds()]), ['k']);
  assert.deepEqual(told(new Reminder(keeper), [holds()]), []);
});

test('what was told stays told while its kernel is busy for a moment, whatever is told meanwhile', () => {
  const reminder = new Reminder(new FakeKeeper());
  const other = holds({ kernel: 'other', pid: 8 });

  assert.deepEqual(told(reminder, [holds()]), ['k']);
  assert.deepEqual(told(reminder, [holds({ state: 'busy' }), other]), ['other']);
  assert.deepEqual(told(reminder, [holds(), other], NOW + 1), []);
  assert.equal(unused(seen([holds({ state: 'busy' })])).length, 1); // its notification stays
});

test('what is remembered is bounded, and the newest of it', () => {
  const keeper = new FakeKeeper();
  const reminder = new Reminder(keeper);
  for (let index = 0; index < 300; index += 1) {
    told(reminder, [holds({ kernel: `k${index}` })]);
  }

  assert.deepEqual(told(reminder, [holds({ kernel: 'k299' })]), []);
  assert.ok([...keeper.kept.values()][0]!.length < 10_000);
});

test('not today is for this kernel and for this day', () => {
  const reminder = new Reminder(new FakeKeeper());
  const other = holds({ kernel: 'other', pid: 8 });

  assert.deepEqual(told(reminder, [holds(), other]), ['k', 'other']);
  reminder.notToday(['k'], NOW);
  assert.deepEqual(told(reminder, [holds({ unused: NOW - 3 * HOUR }), other]), []);
  assert.deepEqual(told(reminder, [holds(), other], NOW + 24 * HOUR), ['k']);
});

test('it is for owners alone, and not of what computes, is busy, or is little', () => {
  const rows = [
    holds({ kernel: 'a', pid: 1, unused: undefined! }),
    holds({ kernel: 'b', pid: 2, state: 'busy' }),
    holds({ kernel: 'c', pid: 3, held: GIB / 8 }),
    holds({ kernel: undefined!, pid: 4 }),
    holds({ kernel: 'e', pid: 5, who: 'other' })
  ];

  assert.deepEqual(told(new Reminder(new FakeKeeper()), rows), []);
});

test('a notebook is as idle as the last of its GPUs and of its processes', () => {
  const both = seen([holds(), holds({ gpu: '1', held: GIB, unused: NOW - HOUR })]);
  const child = seen([holds(), holds({ pid: 8, child: 'python3', unused: undefined! })]);

  assert.deepEqual(
    unused(both).map(one => [one.held / GIB, one.since, one.row.gpu]),
    [[11, NOW - HOUR, '0']]
  );
  assert.deepEqual(unused(child), []);
});

test('zero hours are never, and a browser that keeps nothing or rubbish is no obstacle', () => {
  const broken: Keeper = {
    getItem: () => '[',
    setItem: () => {
      throw new Error('full');
    }
  };

  assert.deepEqual(told(new Reminder(new FakeKeeper()), [holds()], NOW, 0), []);
  const reminder = new Reminder(broken);
  assert.deepEqual(told(reminder, [holds()]), ['k']);
  assert.deepEqual(told(reminder, [holds()], NOW + 10), []);
  reminder.notToday(['k'], NOW + 10);
  assert.deepEqual(told(reminder, [holds()], NOW + 20), []);
  assert.deepEqual(told(reminder, [holds()], NOW + 24 * HOUR), ['k']);
});

test('the running list says what a kernel holds on all GPUs, and for how long without use', () => {
  const rows = [holds(), holds({ gpu: '1', held: GIB }), holds({ kernel: 'b', pid: 8, unused: undefined! }), row()];
  const unseen = { kernel: 'c', pid: 9, active: NOW - 8 * HOUR }; // it was idle for hours before anybody looked
  rows.push(holds({ ...unseen, unused: NOW - 8 * HOUR }), holds({ ...unseen, gpu: '1' }));
  rows.push(holds({ kernel: 'd', pid: 10, active: NOW - 2 * HOUR }));
  const parked = { kernel: 'e', pid: 11, kind: 'C', held: GIB / 2, parked: { size: 2 * GIB } };
  rows.push(holds(parked), holds({ ...parked, gpu: '1' }));

  assert.deepEqual(
    kernels(seen(rows), 'GiB', ENGLISH).map(({ row: { kernel }, text }) => [kernel, text]),
    [
      ['k', '11.0 GiB, unused 2 h'],
      ['b', '10.0 GiB'],
      ['c', '20.0 GiB, idle 8 h, unused 2 h'],
      ['d', '10.0 GiB, unused 2 h'],
      ['e', 'parked: 4 GiB in host memory, 1 GiB stay, unused 2 h']
    ]
  );
});

test('an item of the running list is another one with another kernel or path, though it looks the same', () => {
  const rows = [holds(), holds({ kernel: 'b' }), holds({ path: 'b/a.ipynb' }), holds({ pid: 9 })];
  const items = rows.flatMap(one => kernels(seen([one]), 'GiB', ENGLISH));

  assert.equal(new Set(items.map(({ text }) => text)).size, 1);
  assert.equal(new Set(items.map(identity)).size, 3);
});

test('what kernels hold costs as much as there are rows, and not as much as kernels times rows', () => {
  const reads = (gpus: number, notebooks: number): number => {
    let count = 0;
    const rows = [...Array(gpus * notebooks).keys()].map(place => {
      const [gpu, pid] = [String(place % gpus), Math.floor(place / gpus)];
      const own = holds({ gpu, pid });
      return Object.defineProperty(own, 'kernel', { get: () => ((count += 1), `k${pid}`) });
    });
    assert.equal(kernels(seen(rows), 'GiB', ENGLISH).length, notebooks);
    return count;
  };

  assert.ok(reads(64, 200) <= 64 * reads(1, 200));
  assert.ok(reads(4, 200) <= 20 * reads(4, 10));
});

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

const IDLE: Idle = {
  kernel: 'k',
  pid: 7,
  name: 'train.ipynb',
  path: 'train.ipynb',
  held: 5 * GIB,
  idle: 2 * HOUR,
  told: 0,
  due: {},
  rests: 0,
  put_off: false
};

test('of one that the server parks and shuts down it says what is held, since when, and what will be done', () => {
  const says = (rest: Partial<Idle>): string => sentence({ ...IDLE, ...rest }, 'GiB', ENGLISH);
  const holds = 'train.ipynb has held 5.0 GiB for 2 h without using it.';

  assert.equal(says({}), holds);
  assert.equal(says({ due: { park: 4 * HOUR } }), `${holds} It will be parked in 4 h`);
  assert.equal(says({ due: { stop: 22 * HOUR } }), `${holds} It will be shut down in 22 h`);
  assert.equal(says({ due: { park: 0, stop: 90 } }), `${holds} It will be parked in a minute, and shut down in 1 min`);
  assert.equal(says({ due: { stop: 0 } }), `${holds} It will be shut down in a minute`);
  assert.ok(says({ name: 'x'.repeat(300), due: { park: 4 * HOUR, stop: 22 * HOUR } }).length <= 140);
});
