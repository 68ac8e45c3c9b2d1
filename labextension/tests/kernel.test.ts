// The promises of the widget's store: it follows the model, and says when the kernel no longer does.

import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { ModelStore, type Model } from '../src/kernel';
import { GIB, state } from './make';

class FakeModel {
  traits: Record<string, unknown> = { state: state(), history: { times: [999], used: { 'GPU-0': [GIB] } }, live: true };
  callbacks = new Map<string, Set<() => void>>();

  get(name: string): unknown {
    return this.traits[name];
  }
  set(name: string, value: unknown): void {
    this.traits[name] = value;
    this.callbacks.get(`change:${name}`)?.forEach(callback => callback());
  }
  on(event: string, callback: () => void): void {
    this.callbacks.set(event, (this.callbacks.get(event) ?? new Set()).add(callback));
  }
  off(event: string, callback: () => void): void {
    this.callbacks.get(event)?.delete(callback);
  }
  get listeners(): number {
    return [...this.callbacks.values()].reduce((sum, callbacks) => sum + callbacks.size, 0);
  }
}

function made(model: FakeModel): ModelStore {
  return new ModelStore(model as unknown as Model);
}

test('it has the state and the history of the model, and each state that comes', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const model = new FakeModel();
  const store = made(model);
  let told = 0;
  store.subscribe(() => (told += 1));

  model.set('state', state({ time: 1001 }));

  assert.equal(store.state?.time, 1001);
  assert.deepEqual(store.history.times, [999, 1000, 1001]);
  assert.equal(told, 1);
  mock.timers.reset();
});

test('figures that are not renewed count as saved, and as live when they are', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const model = new FakeModel();
  model.traits['state'] = state({ time: Date.now() / 1000 });
  const store = made(model);

  const kinds = [3000, 500, 0].map(wait => {
    mock.timers.tick(wait);
    return store.link.kind;
  });
  model.set('state', state({ time: 1010 }));

  assert.deepEqual([...kinds, store.link.kind], ['live', 'saved', 'saved', 'live']);
  mock.timers.reset();
});

test('what was saved is not live, not even for a moment', () => {
  mock.timers.enable({ apis: ['setTimeout'] });

  assert.deepEqual(made(new FakeModel()).link, { kind: 'saved' });
  mock.timers.reset();
});

test('a kernel that says that it renews them less often is waited for longer', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const model = new FakeModel();
  const store = made(model);
  model.traits['every'] = 16;
  model.set('state', state({ time: 1001 }));

  mock.timers.tick(17_000);
  const waiting = store.link;
  mock.timers.tick(3000);

  assert.deepEqual([waiting, store.link], [{ kind: 'live', every: 16 }, { kind: 'saved' }]);
  mock.timers.reset();
});

test('it answers from its first word until it is parted from the page', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const model = new FakeModel();
  const store = made(model);
  const before = store.answers;
  model.set('state', state({ time: 1001 }));
  const said = store.answers;
  model.set('history', { times: [1, 2], used: { 'GPU-0': [GIB, GIB] } });
  model.callbacks.get('comm_live_update')?.forEach(callback => callback());

  assert.deepEqual([before, said, store.answers, store.link.kind], [false, true, false, 'saved']);
  assert.deepEqual(store.history.times, [1, 2]);
  mock.timers.reset();
});

test('a kernel that the page knows to start anew, or to be dead, does not answer', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const model = new FakeModel();
  const slots = new Set<(sender: unknown, status: string) => void>();
  const statusChanged = { connect: slots.add.bind(slots), disconnect: slots.delete.bind(slots) };
  const store = made(Object.assign(model, { widget_manager: { kernel: { statusChanged } } }));
  const after = ['busy', 'idle', 'restarting', 'idle', 'dead'].map(status => {
    model.set('state', state());
    slots.forEach(slot => slot(null, status));
    return store.answers;
  });
  store.dispose();

  assert.deepEqual(after, [true, true, false, true, false]);
  assert.equal(slots.size, 0);
  mock.timers.reset();
});

test('where updates are not drawn, figures are of their time from the start', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const model = new FakeModel();
  model.traits['live'] = false;

  assert.equal(made(model).link.kind, 'saved');
  mock.timers.reset();
});

test('a model that is not filled yet has no state', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const model = new FakeModel();
  model.traits = { state: {}, history: {}, live: true };

  assert.equal(made(model).state, null);
  mock.timers.reset();
});

test('it leaves nothing behind', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  const model = new FakeModel();
  const store = made(model);
  let told = 0;
  store.subscribe(() => (told += 1));

  store.dispose();
  mock.timers.tick(10_000);

  assert.equal(model.listeners, 0);
  assert.equal(told, 0);
  mock.timers.reset();
});
