// The promises of the reader's settings: what is set is applied, and no trouble with settings takes the panel away.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Settings, USUAL, type Choices } from '../src/lab/settings';
import { FakeSignal } from './fakes';

type Registry = Pick<ISettingRegistry, 'load'>;

class FakeSettings {
  changed = new FakeSignal<void>();
  composite: Record<string, unknown> = {};
  kept = true;
  set(name: string, value: unknown): Promise<void> {
    if (!this.kept) {
      return Promise.reject(new Error('read only'));
    }
    this.composite[name] = value;
    this.changed.emit();
    return Promise.resolve();
  }
}

function follow(load: () => Promise<FakeSettings>): { applied: Choices[]; settings: Settings } {
  const applied: Choices[] = [];
  const settings = new Settings({ load } as unknown as Registry);
  settings.follow(choices => applied.push(choices));
  return { applied, settings };
}

const settled = (): Promise<void> => new Promise(setImmediate);
let unhandled: unknown[];
let said: unknown[];
const note = (reason: unknown): void => void unhandled.push(reason);

beforeEach(() => {
  unhandled = [];
  said = [];
  process.on('unhandledRejection', note);
  mock.method(console, 'error', (...words: unknown[]) => said.push(...words));
});
afterEach(() => {
  process.off('unhandledRejection', note);
  mock.restoreAll();
});

test('settings that cannot be loaded leave the usual ones, and nothing that nobody handles', async () => {
  const { applied } = follow(() => Promise.reject(new Error('no such schema')));
  await settled();

  assert.deepEqual(applied, [USUAL]);
  assert.deepEqual(unhandled, []);
});

test('an order that cannot be kept is said, and nothing that nobody handles', async () => {
  const saved = new FakeSettings();
  const { settings } = follow(() => Promise.resolve(saved));
  await settled();
  saved.kept = false;
  settings.keep({ order: 'name' });
  await settled();

  assert.match(said.join(), /plugin cannot keep the setting order/);
  assert.deepEqual(unhandled, []);
});

test('they are applied as they change', async () => {
  const saved = new FakeSettings();
  const { applied, settings } = follow(() => Promise.resolve(saved));
  const before = settings.now;
  await settled();
  settings.keep({ order: 'name' });
  saved.composite['unit'] = 'MiB';
  saved.changed.emit();

  assert.deepEqual(applied, [USUAL, { ...USUAL, order: 'name' }, { ...USUAL, order: 'name', unit: 'MiB' }]);
  assert.deepEqual([before, settings.now], [USUAL, applied[2]]);
});

test('without a registry they are as usual, but for an order and a span that are chosen', () => {
  const applied: Choices[] = [];
  const settings = new Settings(null);
  settings.follow(choices => applied.push(choices));
  settings.keep({ order: 'activity' });
  settings.keep({ span: 3600 });

  const ordered = { ...USUAL, order: 'activity' };
  assert.deepEqual(applied, [USUAL, ordered, { ...ordered, span: 3600 }]);
});
