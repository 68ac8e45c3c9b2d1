// The promises about what server and kernel say: it is in the page's language as far as the page knows it, else English.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Gettext } from '@jupyterlab/translation/lib/gettext';
import { saying } from '../src/lab/sentences';
import { Stream } from '../src/lab/stream';
import { Table } from '../src/table';
import { ENGLISH, type Translation } from '../src/view/format';
import { worded } from '../src/view/said';
import { VERSION } from '../src/view/wire';
import { FakeModel, FakeNetwork, full } from './fakes';
import { gpu, row, state } from './make';

/** Brackets around whatever is translated. */
const BRACKETS: Translation = {
  __: (text, ...args) => `[${ENGLISH.__(text, ...args)}]`,
  _n: (one, many, count, ...args) => `[${ENGLISH._n(one, many, count, ...args)}]`
};
const PSEUDO = saying(BRACKETS);
const CHILD = "%1's %2";
const tick = (sequence: number, patch: object): object => ({
  version: VERSION,
  type: 'tick',
  sequence,
  base: sequence - 1,
  patch
});

test('a sentence is translated with its fields, which may be sentences', () => {
  const said = [['this notebook'], ['%1, ended', [CHILD, 'a.ipynb', 'sleep']]].map(words => PSEUDO.said?.(words));

  assert.deepEqual(said, ['[this notebook]', "[[a.ipynb's sleep], ended]"]);
});

test('a name that looks like a template, or like a sentence, stays as it is', () => {
  const lab: Translation = { ...ENGLISH, __: (text, ...args) => Gettext.strfmt(text, ...(args as string[])) };
  for (const trans of [saying(ENGLISH), saying(lab)]) {
    assert.equal(trans.said?.([CHILD, '%2 %1 %% $1 %%', 'others']), "%2 %1 %% $1 %%'s others");
  }
  assert.equal(PSEUDO.said?.(['%1']), undefined); // a figure's name
});

test('what a page does not know stays English, and does no harm', () => {
  const later = { owner: 'a, resting', said: { owner: ['%1, resting', 'a'] } };
  const nested = { owner: 'a, resting, ended', said: { owner: ['%1, ended', ['%1, resting', 'a']] } };
  for (const one of [later, nested]) {
    assert.equal(worded({ rows: { 0: { ...one } } }, PSEUDO).rows[0].owner, one.owner);
  }
  for (const said of [
    null,
    1,
    'x',
    [],
    ['others'],
    { owner: null },
    { owner: 'others' },
    { owner: [{}] },
    { none: ['others'] }
  ]) {
    const message = { rows: { 0: { owner: 'a', said } } };
    assert.deepEqual(worded(structuredClone(message), PSEUDO), message);
  }
});

test('a message of a server that sends no words is shown as it is', () => {
  const before = state({ error: 'No driver.', notes: ['others'], rows: { '0 1': row({ owner: 'this notebook' }) } });

  assert.deepEqual(worded(structuredClone(before), PSEUDO), before);
});

test('the stream words a state, and what a tick changes of it', () => {
  const network = new FakeNetwork();
  const stream = new Stream(network, PSEUDO);
  stream.want('panel', 'processes');
  const said = { owner: [CHILD, 'a.ipynb', 'sleep'] };
  const mine = row({ pid: 1, owner: "a.ipynb's sleep", said });
  network.last.say(
    full(
      1,
      state({
        gpus: { 0: gpu({ rest: 'not told whose', said: { rest: ['not told whose'] } }) },
        rows: { '0 1': mine, '0 2': row({ pid: 2, owner: 'b.ipynb' }) }
      })
    )
  );
  const before = stream.state!;
  assert.equal(before.gpus[0]!.rest, '[not told whose]');
  assert.deepEqual([before.rows['0 1']!.owner, before.rows['0 2']!.owner], ["[a.ipynb's sleep]", 'b.ipynb']);

  const ended = { owner: "a.ipynb's sleep, ended", said: { owner: ['%1, ended', said.owner] } };
  const notes = { notes: ['b', 'others'], said: { notes: ['b', ['others']] } };
  network.last.say(tick(2, { rows: { '0 1': ended, '0 2': null }, ...notes }));
  assert.equal(stream.state!.rows['0 1']!.owner, "[[a.ipynb's sleep], ended]");
  assert.deepEqual(stream.state!.notes, ['b', '[others]']);

  network.last.say(tick(3, { rows: { '0 1': { owner: 'c', said: null } }, notes: ['b'], said: null }));
  assert.equal(stream.state!.rows['0 1']!.owner, 'c');
  assert.deepEqual(stream.state!.notes, ['b']);
});

test('a table has the language of the page whose stream it uses; beside an older one, or none, its sentences are English', () => {
  const network = new FakeNetwork();
  const its = (stream: Stream | null): string[] => {
    const model = new FakeModel();
    model.traits['state'] = state({
      rows: { '0 1': row({ owner: 'this notebook', said: { owner: ['this notebook'] } }) }
    });
    const table = new Table(model.model, stream);
    const { owner } = table.state!.rows['0 1']!;
    model.fire('change:state'); // the kernel answers
    table.watch(model, true);
    const said = { owner: [CHILD, 'a.ipynb', 'sleep'] };
    const rows = {
      '0 1': row({ kernel: 'k' }),
      '0 2': row({ kernel: 'k', child: true, owner: "a.ipynb's sleep", said })
    };
    network.sockets.at(-1)?.say(full(1, state({ rows })));
    table.dispose();
    return [owner, ...Object.values(table.state!.rows).map(row => row.owner)];
  };
  const oldest = new Stream(network, ENGLISH);
  Object.defineProperty(oldest, 'language', { value: undefined }); // it has a `trans`, and translates no sentence
  const english = ['this notebook', 'this notebook', "this notebook's sleep"];

  assert.deepEqual(its(null), english.slice(0, 2));
  assert.deepEqual(its(oldest), english);
  assert.deepEqual(its(new Stream(network, BRACKETS)), english); // its language has no `said`
  assert.deepEqual(its(new Stream(network, PSEUDO)), [
    '[this notebook]',
    '[this notebook]',
    "[[this notebook]'s sleep]"
  ]);
});
