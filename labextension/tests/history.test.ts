// The promises of the history: it is bounded, it keeps gaps, and each time is there once.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { History } from '../src/view/history';
import { GIB, gpu, state } from './make';

test('a full message is taken over, and states are added when their time is new', () => {
  const history = new History();
  history.fill({ times: [998, 999], used: { 'GPU-0': [1, null] } });

  history.append(state({ time: 999 }));
  history.append(state({ time: 1000 }));
  history.append(state({ time: 1000 }));

  assert.deepEqual(history.of(600).times, [998, 999, 1000]);
  assert.deepEqual(history.of(600).series.used.get('GPU-0'), [1, null, 10 * GIB]);
});

test('a GPU that comes later has no past, and one without uuid has its label', () => {
  const history = new History();
  history.append(state({ time: 1 }));
  history.append(state({ time: 2, gpus: { 0: gpu(), 7: { name: 'T4', used: 5, total: 10 } } }));

  assert.deepEqual(history.of(600).series.used.get('7'), [null, 5]);
});

test('a day of states leaves no more than ten minutes', () => {
  const history = new History();
  for (let time = 1; time <= 86400; time += 1) {
    history.append(state({ time }));
  }

  assert.ok(history.of(600).times.length <= 640);
  assert.equal(history.of(600).series.used.get('GPU-0')?.length, history.of(600).times.length);
});

test('states that come too often stay bounded too', () => {
  const history = new History();
  for (let index = 1; index <= 100_000; index += 1) {
    history.append(state({ time: index / 1000 }));
  }

  assert.ok(history.of(600).times.length <= 1200);
});

test('GPUs that come and go leave nothing behind', () => {
  const history = new History();
  for (let time = 1; time <= 10_000; time += 1) {
    history.append(state({ time, gpus: { 0: gpu({ uuid: `GPU-${time}` }) } }));
  }

  assert.ok(history.of(600).series.used.size <= 640);
});

test('a line has a few hundred points, breaks where nothing is known, and is not drawn for nothing', () => {
  const history = new History();
  const times = Array.from({ length: 600 }, (_, index) => index);
  history.fill({
    times,
    used: { a: times.map(time => (time > 200 && time < 300 ? null : GIB)), b: times.map(() => 0) }
  });

  const path = history.of(600).path('used', 'a', 2 * GIB, 300, 24);

  assert.equal(path.match(/M/g)?.length, 2);
  assert.ok((path.match(/[ML]/g) ?? []).length <= 240);
  assert.ok(path.startsWith('M0.5 12.0L'), path.slice(0, 20));
  assert.equal(history.of(600).path('used', 'b', 2 * GIB, 300, 24), '');
  assert.equal(history.of(600).path('used', 'none', 2 * GIB, 300, 24), '');
});

test('a line is drawn anew when its newest point has moved, each at a time of its own, and when all of it is new', () => {
  const history = new History();
  const editions = (part: number): number[] =>
    [1000, 1001, 1002, 1003, 1004].map(time => {
      history.append(state({ time }));
      return Number(history.of(600).edition(part).split(' ')[1]);
    });
  const first = editions(0);
  const filled = history.of(600).edition(0);
  history.fill({ times: [1004], used: {} });

  assert.deepEqual(first, [400, 400, 400, 401, 401]);
  assert.notEqual(history.of(600).edition(0), filled);
  assert.notEqual(history.of(600).edition(0), history.of(600).edition(0.5));
});

test('a clock that is set back leaves nothing in the future, and the line goes on', () => {
  const history = new History();
  for (let time = 1000; time < 1500; time += 1) {
    history.append(state({ time }));
  }
  const before = history.of(600).edition(0);

  history.append(state({ time: 1100 }));
  history.append(state({ time: 1101 }));

  assert.deepEqual(history.of(600).times.slice(-3), [1099, 1100, 1101]);
  assert.equal(history.of(600).series.used.get('GPU-0')?.length, history.of(600).times.length);
  assert.notEqual(history.of(600).edition(0), before);
});

test('the hour is kept too, with a point each ten seconds', () => {
  const history = new History();
  for (let time = 10_000; time <= 10_000 + 2 * 3600; time += 1) {
    history.append(state({ time, gpus: { 0: gpu({ used: time }) } }));
  }
  const end = 10_000 + 2 * 3600;

  assert.deepEqual(history.of(3600).at('GPU-0', 0.5), { time: end - 1800, used: end - 1800, utilisation: null });
  assert.deepEqual(history.of(600).at('GPU-0', 0.5), { time: end - 300, used: end - 300, utilisation: null });
  assert.equal(history.of(3600).at('GPU-0', 0.01)?.used, history.of(3600).at('GPU-0', 0.01)?.time);
  assert.ok(
    (
      history
        .of(3600)
        .path('used', 'GPU-0', 2 * end, 300, 24)
        .match(/[ML]/g) ?? []
    ).length <= 240
  );
});

test('how much a GPU computes is recorded beside what is used, is drawn at 0 too, and unknown is no figure', () => {
  const history = new History();
  history.fill({ times: [998], used: { 'GPU-0': [1] }, utilisation: { 'GPU-0': [0] } });
  history.append(state({ time: 999, gpus: { 0: gpu({ sensors: { utilisation: 93 } }) } }));
  history.append(state({ time: 1000 }));
  const track = history.of(600);

  assert.deepEqual(track.series.utilisation.get('GPU-0'), [0, 93, null]);
  assert.deepEqual([track.most('utilisation', 'GPU-0'), track.at('GPU-0', 1)?.utilisation], [93, null]);
  assert.equal(track.path('utilisation', 'GPU-0', 100, 300, 24), 'M299.0 23.0L299.5 2.5');
  assert.equal(track.path('utilisation', 'GPU-1', 100, 300, 24), '');
});

test('a full message fills both spans', () => {
  const history = new History();
  const times = Array.from({ length: 3600 }, (_, index) => 10_000 + index);
  history.fill({ times, used: { a: times } });

  assert.equal(history.of(600).times.length <= 640, true);
  assert.equal(history.of(3600).at('a', 0.25)?.used, 10_890);
  assert.equal(history.of(3600).most('used', 'a'), 13_599 - 9);
  assert.equal(history.of(600).most('used', 'a'), 13_599);
});

test('where nothing is known there is no value, and an unknown figure is none', () => {
  const history = new History();
  history.fill({ times: [1000, 1300, 1600], used: { a: [1, null, 3] } });

  assert.equal(history.of(600).at('a', 0.75), null);
  assert.deepEqual(history.of(600).at('a', 0.5), { time: 1300, used: null, utilisation: null });
  assert.deepEqual(history.of(600).at('a', 0.999), { time: 1600, used: 3, utilisation: null });
  assert.deepEqual(history.of(600).at('none', 1), { time: 1600, used: null, utilisation: null });
  assert.equal(new History().of(600).at('a', 0.5), null);
});
