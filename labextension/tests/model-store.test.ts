// The promises of the widget's store: it follows the model, and says when the kernel no longer does.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { ModelStore } from '../src/model-store';
import { FakeModel } from './fakes';
import { GIB, state } from './make';

function made(model: FakeModel): ModelStore {
  return new ModelStore(model.model);
}

beforeEach(() => mock.timers.enable({ apis: ['setTimeout'] }));
afterEach(() => mock.timers.reset());

test('it has the state and the history of the model, and each state that comes', () => {
  const model = new FakeModel();
  model.traits['history'] = { times: [999], used: { 'GPU-0': [GIB] } };
  const store = made(model);
  let told = 0;
  store.subscribe(() => (told += 1));

  model.set('state', state({ time: 1001 }));

  assert.equal(store.state?.time, 1001);
  assert.deepEqual(store.history.of(600).times, [999, 1000, 1001]);
  assert.equal(told, 1);
});

test('figures that are not renewed count as saved, and as live when they are', () => {
  const model = new FakeModel();
  model.traits['state'] = state({ time: Date.now() / 1000 });
  const store = made(model);

  const kinds = [3000, 500, 0].map(wait => {
    mock.timers.tick(wait);
    return store.link.kind;
  });
  model.set('state', state({ time: 1010 }));

  assert.deepEqual([...kinds, store.link.kind], ['live', 'saved', 'saved', 'live']);
});

test('what was saved is not live, not even for a moment', () => {
  assert.deepEqual(made(new FakeModel()).link, { kind: 'saved' });
});

test('a kernel that says that it renews them less often is waited for longer', () => {
  const model = new FakeModel();
  const store = made(model);
  model.traits['every'] = 16;
  model.set('state', state({ time: 1001 }));

  mock.timers.tick(17_000);
  const waiting = store.link;
  mock.timers.tick(3000);

  assert.deepEqual([waiting, store.link], [{ kind: 'live', every: 16 }, { kind: 'saved' }]);
});

test('it answers from its first word until it is parted from the page', () => {
  const model = new FakeModel();
  const store = made(model);
  const before = store.answers;
  model.set('state', state({ time: 1001 }));
  const said = store.answers;
  model.set('history', { times: [1, 2], used: { 'GPU-0': [GIB, GIB] } });
  model.fire('comm_live_update');

  assert.deepEqual([before, said, store.answers, store.link.kind], [false, true, false, 'saved']);
  assert.deepEqual(store.history.of(600).times, [1, 2]);
});

test('a kernel that the page knows to start anew, or to be dead, does not answer', () => {
  const model = new FakeModel();
  const { kernel } = model.widget_manager;
  const store = made(model);
  const after = ['busy', 'idle', 'restarting', 'idle', 'dead'].map(status => {
    model.set('state', state());
    kernel.statusChanged.emit(status);
    return store.answers;
  });

  assert.deepEqual(after, [true, true, false, true, false]);
});

test('a kernel whose messages are of another session does not answer, though the page has missed its start', () => {
  const model = new FakeModel();
  const { kernel } = model.widget_manager;
  const store = made(model);
  let told = 0;
  const heard = [
    ['comm_msg', 'one'],
    ['status', 'one'],
    ['stream', "the server's"],
    ['iopub_welcome', 'two'],
    ['status', 'two']
  ].map(([kind, session]) => {
    kernel.say(kind!, session!);
    if (kind === 'comm_msg') {
      model.set('state', state());
      store.subscribe(() => (told += 1));
    }
    return store.answers;
  });

  assert.deepEqual(heard, [true, true, true, false, false]);
  assert.deepEqual([store.link.kind, told], ['saved', 1]);
});

test('nor does one that has said that it goes, whatever the page hears of the next', () => {
  const model = new FakeModel();
  const { kernel } = model.widget_manager;
  const store = made(model);
  model.set('state', state());
  kernel.say('comm_msg', 'one');
  const before = store.answers;
  kernel.say('shutdown_reply', 'one');
  kernel.say('status', 'one');

  assert.deepEqual([before, store.answers, store.link.kind], [true, false, 'saved']);
});

test('where updates are not drawn, figures are of their time from the start', () => {
  const model = new FakeModel();
  model.traits['live'] = false;

  assert.equal(made(model).link.kind, 'saved');
});

test('a model that is not filled yet has no state', () => {
  const model = new FakeModel();
  model.traits = { state: {}, history: {}, live: true };

  assert.equal(made(model).state, null);
});
