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
  const store = made(model);

  const kinds = [3000, 500, 0].map(wait => {
    mock.timers.tick(wait);
    return store.link.kind;
  });
  model.set('state', state({ time: 1010 }));

  assert.deepEqual([...kinds, store.link.kind], ['live', 'saved', 'saved', 'live']);
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
