// The promises of what the user sees: its path is the one that the server knows, as it is named now; and the notebook's
// kernel, and that kernel's language, decide what is offered.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CurrentNotebook, followDocument, obstacle } from '../src/lab/current';
import { ENGLISH } from '../src/view/format';
import { FakeSignal } from './fakes';

class FakeShell {
  currentWidget: unknown = null;
  currentChanged = new FakeSignal<void>();
  see(widget: unknown): void {
    this.currentWidget = widget;
    this.currentChanged.emit();
  }
}

class FakeNotebook {
  context;
  sessionContext = { kernelChanged: new FakeSignal<void>(), session: null as object | null };
  constructor(localPath = 'work/a.ipynb') {
    this.context = { localPath, path: `RTC:${localPath}`, pathChanged: new FakeSignal<void>() };
  }
  rename(localPath: string): void {
    this.context.localPath = localPath;
    this.context.pathChanged.emit();
  }
  /** Give it a kernel. */
  run(language: string): void {
    this.sessionContext.session = { kernel: { id: 'k', spec: Promise.resolve({ language }) } };
    this.sessionContext.kernelChanged.emit();
  }
  get listeners(): number {
    return this.context.pathChanged.slots.size + this.sessionContext.kernelChanged.slots.size;
  }
}

const settled = (): Promise<void> => new Promise(setImmediate);

test('a notebook that is renamed stays the current one, until another is; its path is without its drive', () => {
  const [a, b] = [new FakeNotebook('a.ipynb'), new FakeNotebook('b.ipynb')];
  const shell = new FakeShell();
  const told: (string | undefined)[] = [];
  const documents = { contextForWidget: (widget: unknown) => (widget as Partial<FakeNotebook>).context };

  shell.see(a);
  followDocument(shell as never, documents as never, path => told.push(path));
  a.rename('better.ipynb');
  shell.see(b);
  a.rename('elsewhere.ipynb');
  shell.see({});
  shell.see(null);
  shell.see(b);

  assert.deepEqual(told, ['a.ipynb', 'better.ipynb', 'b.ipynb', undefined, undefined, 'b.ipynb']);
  assert.deepEqual([a.listeners, b.listeners], [0, 1]);
});

test('what is offered follows the notebook that is seen, its kernel, and that one’s language', async () => {
  const [a, b] = [new FakeNotebook(), new FakeNotebook()];
  const shell = new FakeShell();
  const notebooks = { find: (whether: (one: FakeNotebook) => boolean) => [a, b].find(whether) };
  const current = new CurrentNotebook(shell as never, notebooks as never);
  const said: string[] = [];
  const note = (): void => void said.push(obstacle(current, ENGLISH));

  note();
  shell.see(a);
  note();
  a.run('python');
  await settled();
  note();
  a.run('julia');
  await settled();
  note();
  shell.see(b);
  note();
  shell.see({}); // a text

  assert.deepEqual(said, [
    'Open a notebook to set its GPU memory',
    'This notebook has no kernel yet',
    '',
    'This kernel runs julia, and tfgpu_magic is for Python',
    'This notebook has no kernel yet'
  ]);
  assert.deepEqual([a.listeners, b.listeners, current.notebook], [0, 0, null]);
});
