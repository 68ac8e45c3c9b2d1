// The promises of the reader's choices: what is set is applied, and no trouble with settings takes the panel away.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { followChoices, USUAL, type Choices, type Kept } from '../src/lab/choices';
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

function follow(load: () => Promise<FakeSettings>): {
  applied: Choices[];
  end: () => void;
  keep: (chosen: Partial<Kept>) => void;
} {
  const applied: Choices[] = [];
  const disposed = new FakeSignal<void>();
  const keep = followChoices(
    { load } as unknown as Registry,
    'plugin',
    { disposed } as unknown as Parameters<typeof followChoices>[2],
    choices => applied.push(choices)
  );
  return { applied, end: () => disposed.emit(), keep };
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
  const settings = new FakeSettings();
  const { keep } = follow(() => Promise.resolve(settings));
  await settled();
  settings.kept = false;
  keep({ order: 'name' });
  await settled();

  assert.match(said.join(), /plugin cannot keep the setting order/);
  assert.deepEqual(unhandled, []);
});

test('they are applied as they change, until the panel is gone', async () => {
  const settings = new FakeSettings();
  const { applied, end, keep } = follow(() => Promise.resolve(settings));
  await settled();
  keep({ order: 'name' });
  settings.composite['unit'] = 'MiB';
  settings.changed.emit();
  end();
  settings.changed.emit();

  assert.deepEqual(applied, [USUAL, { ...USUAL, order: 'name' }, { ...USUAL, order: 'name', unit: 'MiB' }]);
});

test('without a registry they are as usual, but for an order and a span that are chosen', () => {
  const applied: Choices[] = [];
  const keep = followChoices(null, 'plugin', { disposed: new FakeSignal() } as never, one => applied.push(one));
  keep({ order: 'activity' });
  keep({ span: 3600 });

  const ordered = { ...USUAL, order: 'activity' };
  assert.deepEqual(applied, [USUAL, ordered, { ...ordered, span: 3600 }]);
});
