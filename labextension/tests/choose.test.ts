// The promises of the chooser: what is applied is what is chosen, in time, once; and what came of it is said whole.

import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { Connection, Facts, Outcome } from '../src/lab/kernel';
import { ChooserModel } from '../src/lab/choose/model';
import { ENGLISH } from '../src/view/format';

const GIB = 2 ** 30;
const MIME = 'application/vnd.tfgpu-magic.answer+json';
const SHARED = { text: 'GPU 0 is shared.', severity: 'note' } as const;
const PLANNED = { policy: 'growth', others: '', takes: [], notes: [] };

/** A kernel with one GPU, in a page whose time passes when a test says so. */
class Scene {
  now = 0;
  /** The kernel's clock, which is another. */
  clock = 5000;
  status = 'idle';
  asked: string[] = [];
  facts: Partial<Facts> = {};
  /** What applying leads to, where it is in time. */
  outcome: Outcome = { ...PLANNED, outcome: 'applied', standing: '`growth` waits for TensorFlow.' };
  restarts = 0;
  /** Called with each answer. */
  answered: () => unknown = () => undefined;
  model: ChooserModel;

  constructor(private test: TestContext) {
    test.mock.timers.enable({ apis: ['setTimeout'] });
    test.mock.method(performance, 'now', () => this.now);
    const connection = this as unknown as Connection;
    this.model = new ChooserModel({
      trans: ENGLISH,
      kernel: () => connection,
      loss: () => 'Its variables are lost.',
      restart: first => {
        this.restarts += 1;
        this.facts = {};
        return first(connection);
      }
    });
  }

  requestExecute({ user_expressions }: { user_expressions: { answer: string } }): object {
    const call = user_expressions.answer.replace('__import__("tfgpu_magic.notebook.chooser").notebook.chooser.', '');
    this.asked.push(call);
    const reply = (): object => {
      this.answered();
      return { status: 'ok', data: { [MIME]: this.answer(call) } };
    };
    const done = this.held.then(() => ({ content: { status: 'ok', user_expressions: { answer: reply() } } }));
    return { done, dispose: () => undefined };
  }

  private answer(call: string): object {
    if (call.startsWith('state(')) {
      const gpus = [{ label: '0', free: 16 * GIB, total: 16 * GIB }];
      const facts = {
        now: this.clock,
        late: '',
        policy: '',
        chooses: false,
        gpus,
        error: '',
        asking: false
      };
      const outcome = this.facts.late ? 'late' : 'fits';
      const plan = call === 'state("")' ? {} : { plan: { ...PLANNED, outcome } };
      return { ...facts, ...plan, ...this.facts };
    }
    const [, before] = /^apply\(.*, ([\d.]+)\)$/.exec(call) ?? [];
    return before && this.clock > +before ? { outcome: 'expired' } : this.outcome;
  }

  /** Have the kernel answer nothing until the function that is returned is called. */
  hold(): () => void {
    let release = (): void => undefined;
    this.held = new Promise(resolve => (release = resolve));
    return release;
  }

  async pass(seconds: number): Promise<void> {
    this.now += seconds * 1000;
    this.clock += seconds;
    this.test.mock.timers.tick(seconds * 1000);
    await settled();
  }

  /** Open it: what there is was asked, and what the first choice would do. */
  async open(): Promise<void> {
    await this.model.load();
    await this.pass(0.3);
  }

  private held = Promise.resolve();
}

const settled = (): Promise<void> => new Promise(setImmediate);

test('what is chosen is applied however long the dialog is open, also while an answer is awaited', async t => {
  const scene = new Scene(t);
  await scene.open();
  await scene.pass(60);
  scene.model.choose({ memory: 'limit' });
  const release = scene.hold();
  await scene.pass(0.3); // the question is under way
  const applying = scene.model.apply();
  release();

  assert.deepEqual(await applying, { applied: true, said: '`growth` waits for TensorFlow.' });
  assert.equal(scene.asked.at(-1)?.slice(0, 18), 'apply("limit 40%",');
});

test('Apply is heard at once after an answer, which comes before the kernel says that it is idle', async t => {
  const scene = new Scene(t);
  await scene.open();
  scene.answered = () => (scene.status = 'busy');
  scene.model.choose({ memory: 'limit' });
  await scene.pass(0.3);
  const { applied } = await scene.model.apply();
  scene.model.resume(); // it was idle, and runs a cell now
  const behind = scene.model.apply();
  await scene.pass(1);

  assert.ok(applied);
  assert.deepEqual(await behind, { applied: false, said: 'The kernel is busy. The dialog goes on when it is idle.' });
});

test('Apply waits for the moment that a kernel works for another page', async t => {
  const scene = new Scene(t);
  await scene.open();
  scene.status = 'busy';
  const applying = scene.model.apply();
  await scene.pass(0.5);
  const before = scene.asked.at(-1)?.slice(0, 5);
  scene.status = 'idle';
  scene.model.resume();

  assert.equal(before, 'state');
  assert.ok((await applying).applied);
});

test('it opens with the choice where a kernel is busy for a moment, and without it where that lasts', async t => {
  const scene = new Scene(t);
  scene.status = 'busy';
  const opening = scene.model.open();
  scene.status = 'idle';
  scene.model.resume();
  await opening;
  const ready = scene.model.ready;
  scene.status = 'busy';
  const again = scene.model.open();
  await scene.pass(1);
  await again;

  assert.equal(ready, 'apply');
  assert.equal(scene.model.state.notice, 'The kernel is busy. The dialog goes on when it is idle.');
});

test('while Apply waits, what is chosen anew is not applied, and after Cancel no kernel is restarted', async t => {
  const scene = new Scene(t);
  await scene.open();
  scene.status = 'busy';
  scene.model.choose({ memory: 'limit' });
  const applying = scene.model.apply();
  await scene.pass(0.3);
  scene.model.choose({ amount: 90 });
  scene.status = 'idle';
  scene.model.resume();
  const other = await applying;
  scene.facts = { late: 'TensorFlow is already using GPU 0.' };
  await scene.open();
  const release = scene.hold();
  const restarting = scene.model.apply();
  scene.model.dispose();
  release();

  assert.deepEqual([other, await restarting], Array(2).fill({ applied: false, said: '' }));
  assert.equal(scene.restarts, 0);
  assert.ok(!scene.asked.some(call => call.startsWith('apply')));
});

test('where the clocks have parted it is said that nothing was changed, and the next Apply is in time', async t => {
  const scene = new Scene(t);
  await scene.open();
  scene.clock += 3600; // the page's machine slept
  const first = await scene.model.apply();
  const { done, outcome } = scene.model.state;
  const second = await scene.model.apply();

  assert.deepEqual(first, { applied: false, said: 'Nothing was changed: the kernel was busy for too long.' });
  assert.deepEqual([done, outcome?.outcome], [first.said, 'fits']);
  assert.ok(second.applied);
});

test('a kernel that has used the GPUs meanwhile is asked how it stands, and offers a restart', async t => {
  const scene = new Scene(t);
  await scene.open();
  scene.outcome = { outcome: 'overtaken' };
  scene.facts = { late: 'TensorFlow is already using GPU 0.' };
  const { applied } = await scene.model.apply();

  assert.deepEqual([applied, scene.model.ready], [false, 'restart']);
  assert.equal(scene.model.state.loss, 'Its variables are lost.');
  assert.equal(scene.restarts, 0);
});

test('a refusal is shown with its ways out, and one of them can be applied', async t => {
  const scene = new Scene(t);
  await scene.open();
  const applied = scene.outcome;
  scene.outcome = { outcome: 'refused', reason: 'GPU 0 is full.', ways: ['limit 1GiB'] };
  const refused = await scene.model.apply();
  const { ready } = scene.model;
  scene.outcome = applied;
  scene.model.take('limit 1GiB');
  const second = await scene.model.apply();

  assert.deepEqual([refused, ready], [{ applied: false, said: 'GPU 0 is full.' }, null]);
  assert.ok(second.applied);
  assert.equal(scene.model.state.choice.amount, 1);
});

test('a refusal is about its own words, and other words can be applied at once', async t => {
  const scene = new Scene(t);
  await scene.open();
  scene.facts = { plan: { outcome: 'refused', reason: 'GPU 0 has no 16 GiB.', ways: [] } };
  scene.model.choose({ memory: 'limit', amount: 100 });
  await scene.pass(0.3);
  const { ready } = scene.model;
  scene.model.choose({ amount: 30 });
  const now = scene.model.ready;
  scene.model.choose({ amount: 100 });
  const release = scene.hold();
  await scene.pass(0.3);
  scene.model.choose({ amount: 30 }); // while the kernel is asked for the other
  release();
  await settled();

  assert.deepEqual([ready, now, scene.model.ready], [null, 'apply', 'apply']);
});

test('a driver that is slow is asked on, and what was chosen stays', async t => {
  const scene = new Scene(t);
  scene.facts = { gpus: [], error: 'NVML did not answer within 2 s.', asking: true };
  await scene.open();
  await scene.pass(0.3);
  const { notice } = scene.model.state;
  scene.facts = {};
  await scene.pass(0.3);
  await scene.pass(0.3);
  scene.model.choose({ memory: 'limit' });
  scene.facts = { gpus: [], asking: true };
  await scene.pass(0.3);
  const { facts, words } = scene.model.state;
  const { ready } = scene.model;
  scene.facts = {};
  await scene.pass(0.3);

  assert.equal(notice, 'The driver is slow to answer, and is still being asked…');
  assert.deepEqual([facts?.gpus.length, words, ready], [1, 'limit 40%', null]);
  assert.deepEqual([scene.model.state.words, scene.model.ready], ['limit 40%', 'apply']);
});

test('where the driver does not answer that is said, nothing is applied, and it can be asked again', async t => {
  const scene = new Scene(t);
  scene.facts = { gpus: [], error: 'NVML did not answer within 2 s.' };
  await scene.open();
  const asked = [...scene.asked];
  const { facts, notice } = scene.model.state;
  const refused = await scene.model.apply();
  await scene.pass(60);
  scene.facts = { policy: 'limit 4GiB' };
  await scene.model.load();

  assert.deepEqual([facts?.error, notice, scene.model.ready], ['NVML did not answer within 2 s.', '', 'apply']);
  assert.deepEqual([asked, refused.applied], [['state("")'], false]);
  assert.equal(scene.asked.length, 2); // the kernel is not kept by questions that nobody asked
  assert.equal(scene.model.state.words, 'limit 4GiB');
});

test('a kernel that does not answer in time is busy, and is asked again when it is idle', async t => {
  const scene = new Scene(t);
  const release = scene.hold();
  const opening = scene.model.load();
  scene.model.resume(); // the end of another question
  await scene.pass(9);
  await opening;
  const { notice } = scene.model.state;
  release();
  scene.model.resume();
  await scene.pass(0.3);

  assert.equal(notice, 'The kernel is busy. The dialog goes on when it is idle.');
  assert.deepEqual([scene.model.state.notice, scene.model.ready], ['', 'apply']);
});

test('a busy kernel is asked nothing until it is idle, however often that is', async t => {
  const scene = new Scene(t);
  scene.status = 'busy';
  await scene.open();
  scene.model.resume();
  await scene.pass(0.3); // it is busy once more
  scene.status = 'idle';
  const { length } = scene.asked;
  scene.model.resume();
  await scene.pass(0.3);

  assert.equal(length, 0);
  assert.equal(scene.model.ready, 'apply');
});

test('who applies to a kernel that is busy for long is told, also when it is idle again', async t => {
  const scene = new Scene(t);
  await scene.open();
  scene.status = 'busy';
  const applying = scene.model.apply();
  await scene.pass(1.1);
  const { applied } = await applying;
  scene.status = 'idle';
  scene.model.resume();
  await scene.pass(0.3);

  const { notice, done } = scene.model.state;
  assert.deepEqual([applied, notice, scene.model.ready], [false, '', 'apply']);
  assert.equal(done, 'Nothing was changed: the kernel was busy for too long.');
});

test('all that was printed and noted is said, but for what was shown before', async t => {
  const scene = new Scene(t);
  scene.facts = { plan: { ...PLANNED, outcome: 'fits', notes: [SHARED] } };
  await scene.open();
  scene.outcome = {
    ...PLANNED,
    outcome: 'applied',
    standing: '`growth` is in force.',
    notes: [SHARED, { text: 'A note.', severity: 'note' as const }],
    loads: true,
    said: 'tfgpu_magic: a warning'
  };

  assert.deepEqual(await scene.model.apply(), {
    applied: true,
    said: '`growth` is in force.\ntfgpu_magic was loaded for it.\nA note.\ntfgpu_magic: a warning'
  });
});

test('a restart gives the new kernel the policies of all frameworks', async t => {
  const scene = new Scene(t);
  const late = 'TensorFlow is already using GPU 0.';
  scene.facts = { late, plan: { ...PLANNED, outcome: 'late', policy: 'visible 0; growth', others: 'limit 2GiB' } };
  await scene.open();

  assert.ok((await scene.model.apply()).applied);
  assert.equal(scene.restarts, 1);
  assert.equal(scene.asked.at(-1), 'resume("visible 0; growth", "limit 2GiB")');
});

test('a restart whose answer is lost ends, and the kernel, which is idle, is asked how it stands', async t => {
  const scene = new Scene(t);
  scene.facts = { late: 'TensorFlow is already using GPU 0.' };
  await scene.open();
  const applying = scene.model.apply();
  const release = scene.hold(); // for good, as far as this answer goes
  await settled();
  await scene.pass(61);
  const { applied } = await applying;
  release();
  await scene.pass(0.3);

  const { notice, done } = scene.model.state;
  assert.ok(!applied);
  assert.deepEqual([notice, scene.model.ready], ['', 'apply']);
  assert.equal(done, 'The kernel did not say in time whether this is in force.');
});

test('who leaves during a restart hears what came of it', async t => {
  const scene = new Scene(t);
  scene.facts = { late: 'TensorFlow is already using GPU 0.' };
  await scene.open();
  scene.outcome = { outcome: 'refused', reason: 'GPU 0 is full.', ways: [] };
  const applying = scene.model.apply();
  const release = scene.hold(); // of the kernel that starts
  await settled();
  scene.model.dispose();
  release();

  assert.deepEqual(await applying, { applied: false, said: 'GPU 0 is full.' });
  assert.equal(scene.asked.at(-1), 'resume("growth", "")');
});

test('no kernel is given up for what cannot be had in a new one', async t => {
  const scene = new Scene(t);
  const late = 'TensorFlow is already using GPU 0.';
  scene.facts = { late };
  await scene.open();
  scene.facts = { late, plan: { outcome: 'refused', reason: 'GPU 0 is full.', ways: [] } };

  assert.deepEqual(await scene.model.apply(), { applied: false, said: 'GPU 0 is full.' });
  assert.deepEqual([scene.restarts, scene.model.ready], [0, null]);
});
