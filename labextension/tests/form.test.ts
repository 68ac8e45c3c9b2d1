// The promises of the chooser's drawing: what the kernel has said to the words.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { form, type Hands } from '../src/lab/choose/form';
import { ALL } from '../src/lab/choose/choice';
import { ENGLISH } from '../src/view/format';
import { notes } from '../src/view/head';
import type { Look } from '../src/view/options';
import { state as shown, structure } from './make';

/** Return the text of what lit-html is given to draw. */
function text(drawn: unknown): string {
  if (drawn instanceof Array) {
    return drawn.map(text).join('');
  }
  const values = (drawn as { values?: unknown[] } | null)?.values;
  return values ? text(values) : typeof drawn === 'string' ? drawn : '';
}

function drawn(said: string, severity: 'note' | 'warning'): string {
  const facts = {
    ...{ now: 0, late: '', policy: '', ceiling: '', chooses: true, error: '', asking: false },
    gpus: [{ label: '0', total: 2 ** 34, free: 2 ** 34 }]
  };
  const choice = { gpu: ALL, memory: 'limit', amount: 90, unit: '%', grow: false, release: false } as const;
  const takes = [{ gpu: '0', takes: 'limit 14.4 GiB' }];
  const outcome = {
    outcome: 'fits',
    policy: 'limit 90%',
    others: '',
    takes,
    notes: [{ text: said, severity }]
  } as const;
  const state = { facts, choice, outcome, words: 'limit 90%', notice: '', loss: '', done: '' };
  return text(form(state, {} as Hands, 'GiB', ENGLISH));
}

test('lines and clicks are the same, whatever the words of a message', () => {
  const gpus = [{ label: '0', total: 2 ** 34, free: 2 ** 34 }];
  const facts = { ...{ now: 0, late: '', policy: '', ceiling: '', chooses: true, error: '', asking: false }, gpus };
  const choice = { gpu: ALL, memory: 'limit', amount: 90, unit: '%', grow: false, release: false } as const;
  const planned = { policy: 'limit 90%', others: '', takes: [{ gpu: '0', takes: 'limit 14.4 GiB' }] };
  const read = ['Warning: %tf_gpu limit 1GiB', 'KeyboardInterrupt', '--restart', 'this notebook', 'refused'];
  for (const severity of ['note', 'warning'] as const) {
    for (const kind of ['fits', 'late', 'applied', 'refused', 'wrong'] as const) {
      const shown = read.map(said => {
        const outcome =
          kind === 'refused' || kind === 'wrong'
            ? { outcome: kind, reason: said, ways: ['limit 80%', 'growth'] }
            : { outcome: kind, ...planned, notes: [{ text: said, severity }] };
        const state = { facts, choice, outcome, words: 'limit 90%', notice: '', loss: '', done: '' };
        return structure(form(state, {} as Hands, 'GiB', ENGLISH), new Set([said]));
      });
      shown.forEach(one => assert.deepEqual(one, shown[0]));
    }
  }
});

test('the panel draws a note by how serious it is, whatever its words', () => {
  const look = { trans: ENGLISH, show: { notes: true } } as unknown as Look;
  for (const severity of ['good', 'note', 'warning', 'fault'] as const) {
    const drawn = ['Warning: %tf_gpu limit 1GiB', 'a fault', '--restart'].map(words =>
      structure(notes(shown({ notes: [{ text: words, severity }] }), look), new Set([words]))
    );
    drawn.forEach(one => assert.deepEqual(one, drawn[0]));
    assert.match(JSON.stringify(drawn[0]), new RegExp(`"${severity}"`));
  }
});

test('that it fits is not said above a warning', () => {
  assert.match(drawn('Warning: GPU 0.', 'note'), /It fits\.GPU 0: limit 14\.4 GiBWarning: GPU 0/);
  assert.match(drawn('Attention: GPU 0.', 'warning'), /GPU 0: limit 14\.4 GiBAttention: GPU 0/);
  assert.doesNotMatch(drawn('Attention: GPU 0.', 'warning'), /It fits/);
});

test('where no GPU can be read, as when the driver has gone, one sentence says so', () => {
  const gpus = ['0', '1'].map(label => ({ label, name: 'A100', error: 'the driver is not loaded (error 9)' }));
  const facts = { now: 0, late: '', policy: '', ceiling: '', chooses: true, error: '', asking: false, gpus };
  const choice = { gpu: ALL, memory: 'limit', amount: 6, unit: '%', grow: false, release: false } as const;
  const state = { facts, choice, outcome: null, words: 'limit 6%', notice: '', loss: '', done: '' };
  const shown = text(form(state, {} as Hands, 'GiB', ENGLISH));

  assert.match(shown, /^\s*No GPU can be read now: the driver is not loaded \(error 9\)\.\s*Ask Again\s*$/);
});

test('a ceiling is told, and what is in force is not said to have been asked for', () => {
  const gpus = [{ label: '0', total: 2 ** 34, free: 2 ** 34, most: 2 ** 30 }];
  const facts = {
    ...{ now: 0, late: '', policy: 'pick; limit 6%', ceiling: 'limit 6%', chooses: true },
    ...{ error: '', asking: false, gpus }
  };
  const choice = { gpu: ALL, memory: 'limit', amount: 6, unit: '%', grow: false, release: false } as const;
  const state = { facts, choice, outcome: null, words: 'limit 6%', notice: '', loss: '', done: '' };
  const shown = text(form(state, {} as Hands, 'GiB', ENGLISH));

  assert.match(shown, /In force:/);
  assert.match(shown, /ceiling: limit 6%/);
  assert.match(shown, /6% of GPU 0\. At most 6%: limited by the ceiling limit 6%/);
});
