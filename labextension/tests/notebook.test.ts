// The promises of the notebook at hand: it is the one that is seen, and its kernel's language decides what is offered.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Widget } from '@lumino/widgets';
import { AtHand, obstacle } from '../src/lab/notebook';
import { ENGLISH } from '../src/view/format';
import { FakeSignal } from './fakes';
import { row, state } from './make';

class FakeNotebook {
  title = { changed: new FakeSignal<void>() };
  context = {
    path: 'work/a.ipynb',
    sessionContext: { kernelChanged: new FakeSignal<void>(), session: null as object | null }
  };
  hasClass(name: string): boolean {
    return name === 'jp-NotebookPanel';
  }
  /** Give it a kernel. */
  run(language: string): void {
    this.context.sessionContext.session = { kernel: { id: 'k', spec: Promise.resolve({ language }) } };
    this.context.sessionContext.kernelChanged.emit();
  }
  get listeners(): number {
    return this.title.changed.slots.size + this.context.sessionContext.kernelChanged.slots.size;
  }
}

const settled = (): Promise<void> => new Promise(setImmediate);

test('what is offered follows the notebook that is seen, its kernel, that one’s language, and its parking', async () => {
  const [a, b] = [new FakeNotebook(), new FakeNotebook()];
  const shell = { currentWidget: null as unknown, currentChanged: new FakeSignal<void>() };
  const disposed = new FakeSignal<void>();
  const atHand = new AtHand(shell as never, { disposed } as unknown as Widget);
  const said: string[] = [];
  let now = state();
  const note = (): void => void said.push(obstacle(atHand, ENGLISH, { state: now }));
  const see = (widget: unknown): void => {
    shell.currentWidget = widget;
    shell.currentChanged.emit();
  };

  note();
  see(a);
  note();
  a.run('python');
  await settled();
  note();
  now = state({ rows: { '0 7': row({ kernel: 'k', parking: 'parked' }) } });
  note();
  a.run('julia');
  await settled();
  note();
  see(b);
  note();
  disposed.emit();

  assert.deepEqual(said, [
    'Open a notebook to set its GPU memory',
    'This notebook has no kernel yet',
    '',
    'This notebook is parked: bring its memory back first',
    'This kernel runs julia, and tfgpu_magic is for Python',
    'This notebook has no kernel yet'
  ]);
  assert.equal(a.listeners + b.listeners + shell.currentChanged.slots.size, 0);
});
