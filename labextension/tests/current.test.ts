// The promises of the current document's path: it is the one that the server knows, and as it is named now.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { followCurrent, path } from '../src/lab/current';
import { FakeSignal } from './fakes';

type Following = Parameters<typeof followCurrent>;

const contents = { localPath: (name: string) => name.replace(/^\w+:/, '') };

test('a document of another drive, as of collaboration, has the path that its session has', () => {
  assert.equal(path({ context: { path: 'RTC:work/train.ipynb' } }, contents), 'work/train.ipynb');
  assert.equal(path({ context: { path: 'train.ipynb' } }, contents), 'train.ipynb');
  assert.equal(path({}, contents), undefined);
  assert.equal(path(null, contents), undefined);
});

test('a notebook that is renamed stays the current one, until another is, or the panel is gone', () => {
  const document = (name: string): { context: { path: string; pathChanged: FakeSignal<string> } } => ({
    context: { path: name, pathChanged: new FakeSignal() }
  });
  const [a, b] = [document('a.ipynb'), document('b.ipynb')];
  const shell = { currentWidget: a as unknown, currentChanged: new FakeSignal<void>() };
  const disposed = new FakeSignal<void>();
  const told: (string | undefined)[] = [];
  const rename = (which: typeof a, name: string): void => {
    which.context.path = name;
    which.context.pathChanged.emit(name);
  };
  const go = (widget: unknown): void => {
    shell.currentWidget = widget;
    shell.currentChanged.emit();
  };

  const [app, owner] = [{ shell, serviceManager: { contents } }, { disposed }] as unknown as Following;
  followCurrent(app, owner, one => told.push(one));
  rename(a, 'better.ipynb');
  go(b);
  rename(a, 'elsewhere.ipynb');
  go(null);
  go(b);
  disposed.emit();
  rename(b, 'late.ipynb');

  assert.deepEqual(told, ['a.ipynb', 'better.ipynb', 'b.ipynb', undefined, 'b.ipynb']);
  assert.equal(
    shell.currentChanged.slots.size + a.context.pathChanged.slots.size + b.context.pathChanged.slots.size,
    0
  );
});
