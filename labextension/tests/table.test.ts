// The promises of the table: it looks where it costs least, and nowhere while nobody sees it.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { Stream } from '../src/lab/stream';
import { Table } from '../src/table';
import { ENGLISH } from '../src/view/format';
import { FakeModel, FakeNetwork, full } from './fakes';
import { GIB, gpu, row, state } from './make';

const view = {};
let model: FakeModel;
let network: FakeNetwork;

function made(streamed = true): Table {
  model = new FakeModel();
  network = new FakeNetwork();
  return new Table(model.model, streamed ? new Stream(network, ENGLISH) : null);
}

/** Let time pass second by second: what is planned meanwhile has its turn too. */
function pass(milliseconds: number): void {
  for (let left = milliseconds; left > 0; left -= 1000) {
    mock.timers.tick(Math.min(left, 1000));
  }
}

beforeEach(() => mock.timers.enable({ apis: ['setTimeout'] }));
afterEach(() => mock.timers.reset());

test('a table that nobody sees asks nobody', () => {
  const table = made();
  pass(60_000);

  assert.equal(table.state?.time, 1000);
  assert.deepEqual([model.heard(), network.sockets.length], [[], 0]);
});

test('where there is no server it tells the kernel that it is drawn, until nobody sees it', () => {
  const table = made(false);
  table.watch(view, true);
  pass(1);
  const first = model.heard();
  model.set('state', state({ time: 1001 }));
  pass(25_000);
  const later = model.heard();
  table.setHidden(true);
  pass(60_000);
  const hidden = model.heard();
  table.setHidden(false);
  pass(1);
  const back = model.heard();
  table.watch(view, false);
  pass(60_000);

  assert.deepEqual(first, ['refresh']);
  assert.deepEqual(later, ['drawn', 'drawn', 'drawn']);
  assert.deepEqual([hidden, back, model.heard()], [[], ['refresh'], []]);
});

test('to a kernel that hears nothing, since a cell runs, it says less and less', () => {
  const table = made(false);
  table.watch(view, true);
  model.traits['every'] = 4;
  model.set('state', state({ time: 1001 }));
  pass(1);
  model.heard();
  pass(8 * 8000);
  const deaf = model.heard();
  model.traits['every'] = 1;
  model.set('state', state({ time: 1002 }));
  pass(2 * 8000);

  assert.deepEqual(
    [deaf, model.heard()],
    [
      ['drawn', 'drawn'],
      ['drawn', 'drawn']
    ]
  );
});

test('a kernel that does not answer, since another is in its place, is asked less and less', () => {
  const table = made();
  table.watch(view, true);
  model.set('state', state({ time: 1001 }));
  model.widget_manager.kernel.statusChanged.emit('starting');
  pass(600_000);
  const asked = model.heard();
  model.set('state', state({ time: 1600 }));
  pass(23_000);

  assert.deepEqual(asked, Array(7).fill('refresh'));
  assert.deepEqual(model.heard(), ['drawn', 'drawn', 'drawn']);
});

test('two views of it cost what one does', () => {
  const table = made(false);
  table.watch(view, true);
  table.watch({}, true);
  pass(1);

  assert.deepEqual(model.heard(), ['refresh']);
});

test('once its kernel answered it draws what the server sends, and says nothing to the kernel', () => {
  const table = made();
  table.watch(view, true);
  pass(1);
  const before = network.sockets.length;
  model.set('state', state({ time: 1001 }));
  network.last.say(full(1, state({ time: 1002, rows: { '0 1': row({ pid: 1, held: GIB }) } })));
  model.heard();
  pass(60_000);

  assert.equal(before, 0);
  assert.deepEqual([table.state?.time, table.link.kind, model.heard()], [1002, 'live', []]);
});

test('while nobody sees it there is no stream, and it is there again without a word to the kernel', () => {
  const table = made();
  table.watch(view, true);
  model.set('state', state({ time: 1001 }));
  network.last.say(full(1, state({ time: 1002 })));
  table.watch(view, false);
  const open = network.open;
  model.heard();
  table.watch(view, true);
  pass(100);
  network.last.say(full(1, state({ time: 1050 })));
  pass(60_000);

  assert.equal(open, 0);
  assert.deepEqual([network.open, table.state?.time, model.heard()], [1, 1050, []]);
});

test('what only the kernel says of itself is in what the server sends', () => {
  const table = made();
  table.watch(view, true);
  const OLD = { text: 'The driver is old.', severity: 'warning' as const };
  const notes = [{ text: 'TensorFlow is using the GPUs.', severity: 'note' as const }];
  model.set('state', state({ gpus: { 0: gpu({ logical: 'GPU:0', policy: 'growth' }) }, notes }));
  const rows = {
    '0 1': row({ pid: 1, kernel: 'k', owner: 'a.ipynb', path: 'a.ipynb', held: GIB, spare: true }),
    '0 2': row({
      pid: 2,
      kernel: 'k',
      owner: "a.ipynb's sleep",
      path: 'a.ipynb',
      child: 'sleep',
      held: GIB
    }),
    '0 3': row({ pid: 3, kernel: 'other', owner: 'b.ipynb', held: GIB, spare: true })
  };
  network.last.say(full(1, state({ rows, notes: [OLD] })));

  assert.deepEqual(
    Object.values(table.state!.rows).map(({ who, owner }) => [who, owner]),
    [
      ['this', 'this notebook'],
      ['this', "this notebook's sleep"],
      ['mine', 'b.ipynb']
    ]
  );
  assert.deepEqual(
    Object.values(table.state!.rows).map(({ spare }) => spare),
    [undefined, undefined, true] // nobody is asked to shut down the notebook that he is in
  );
  assert.deepEqual([table.state!.gpus['0']!.policy, table.state!.gpus['0']!.logical], ['growth', 'GPU:0']);
  assert.deepEqual(table.state!.notes, [...notes, OLD]);
});

test('which rows are its own follows from their kernel, whatever their names read like', () => {
  const table = made();
  table.watch(view, true);
  model.set('state', state());
  const mine = { kernel: 'k', path: "this notebook's x.ipynb", held: GIB };
  const rows = {
    '0 1': row({ ...mine, pid: 1, owner: "this notebook's x.ipynb" }),
    '0 2': row({ ...mine, pid: 2, owner: "this notebook's x.ipynb's sleep", child: 'sleep' }),
    '0 3': row({ ...mine, pid: 3, owner: 'python3, does not answer', child: 'python3, does not answer' }),
    '0 4': row({ kernel: 'other', pid: 4, owner: 'this notebook', held: GIB }),
    '0 5': row({ who: 'other', owner: 'this notebook', held: GIB })
  };
  network.last.say(full(1, state({ rows })));

  assert.deepEqual(
    Object.values(table.state!.rows).map(({ who, owner }) => [who, owner]),
    [
      ['this', 'this notebook'],
      ['this', "this notebook's sleep"],
      ['this', "this notebook's python3, does not answer"],
      ['mine', 'this notebook'],
      ['other', 'this notebook']
    ]
  );
});

test('a server that sees other GPUs than the kernel is left for good', () => {
  const table = made();
  table.watch(view, true);
  model.set('state', state({ time: 1001 }));
  network.last.say(full(1, state({ time: 1002, gpus: { 0: gpu({ uuid: 'GPU-of-another-machine' }) } })));
  pass(9000);

  assert.deepEqual([table.state?.time, network.open], [1001, 0]);
  assert.ok(model.heard().includes('drawn'));
});

test("a server that sees no driver, as where kernels are on another machine, hides none of the kernel's GPUs", () => {
  const table = made();
  table.watch(view, true);
  model.set('state', state({ time: 1001 }));
  network.last.say(full(1, state({ time: 1002, gpus: {}, error: 'There is no NVIDIA driver.' })));
  model.heard();
  pass(9000);
  const meanwhile = [table.state?.time, table.state?.error, model.heard().length > 0];
  network.last.say(full(2, state({ time: 1010 })));

  assert.deepEqual(meanwhile, [1001, undefined, true]);
  assert.deepEqual([table.state?.time, table.link.kind], [1010, 'live']);
});

test('a server without the extension is left for good', async () => {
  const table = made();
  network.answer = 'not there';
  table.watch(view, true);
  model.set('state', state({ time: 1001 }));
  network.sockets[0]!.onclose?.();
  await Promise.resolve();
  await Promise.resolve();
  pass(9000);

  assert.deepEqual([table.link.kind === 'refused', network.open], [false, 0]);
  assert.ok(model.heard().includes('drawn'));
});

test('it ends with its kernel, and shows what was seen last', () => {
  const table = made();
  table.watch(view, true);
  model.set('state', state({ time: 1001 }));
  network.last.say(full(1, state({ time: 1002 })));
  model.fire('comm_live_update');

  assert.deepEqual([table.link.kind, table.state?.time, network.open], ['saved', 1002, 0]);
});

test('saved with a notebook it is of its time, whatever the server sees now', () => {
  const table = made();
  table.watch(view, true);
  pass(60_000);

  assert.deepEqual([table.link.kind, table.state?.time, network.sockets.length], ['saved', 1000, 0]);
});

test('it leaves nothing behind', () => {
  const table = made();
  table.watch(view, true);
  model.set('state', state({ time: 1001 }));
  table.dispose();
  model.heard();
  pass(60_000);

  assert.equal(network.open, 0);
  assert.deepEqual(model.heard(), []);
  assert.equal(model.listeners, 0);
});
