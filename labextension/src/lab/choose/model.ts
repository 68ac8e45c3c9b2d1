// What the chooser knows and does: it asks the kernel as the choice changes, and has what is chosen applied.

import { Signal, type ISignal } from '@lumino/signaling';
import type { Translation } from '../../view/format';
import {
  ask,
  isFree,
  PATIENCE,
  START,
  type Connection,
  type Facts,
  type Outcome,
  type Planned,
  type Reply
} from '../kernel';
import { ALL, allowed, converted, measure, read, words, type Choice } from './choice';
import { readable, type Form } from './form';

/** Milliseconds after a change until the kernel is asked. */
const PAUSE = 250;

/** Milliseconds for which a kernel is busy with the work of another page or tool, and with no cell to speak of. */
const MOMENT = 1000;

/** Seconds that a kernel may take to apply a policy, which waits for a slow driver. */
const APPLY = 30;

const USUAL: Choice = { gpu: ALL, memory: 'growth', amount: 40, unit: '%', grow: false, release: false };

export interface Surroundings {
  trans: Translation;
  kernel: () => Connection | null;
  /** What a restart of the kernel discards and gives back. */
  loss: () => string;
  /** Restarts the kernel, and has it asked something first. */
  restart: <T>(first: (kernel: Connection) => Promise<T>) => Promise<T>;
}

/** What became of a choice: `said` is all there is to say of it, or why it was not applied. */
export interface Done {
  applied: boolean;
  said: string;
}

export class ChooserModel {
  constructor(private around: Surroundings) {}

  get state(): Readonly<Form> {
    return this.form;
  }

  /** Emitted when the state is another. */
  get changed(): ISignal<this, void> {
    return this.signal;
  }

  /** Whether what is chosen can be applied now: here, or by a restart; else null. */
  get ready(): 'apply' | 'restart' | null {
    const { facts, notice } = this.form;
    return !facts || !readable(facts) || notice || this.refused ? null : facts.late ? 'restart' : 'apply';
  }

  dispose(): void {
    this.disposed = true;
    this.forget();
    Signal.clearData(this);
  }

  /** Ask the kernel for the first time: of a page that has just been loaded it may be busy with much. */
  async open(): Promise<void> {
    await this.moment();
    await this.load();
  }

  /** Ask the kernel what there is, and what the choice would do. */
  async load(): Promise<void> {
    this.forget();
    const kernel = this.kernel();
    if (!kernel) {
      return;
    }
    const number = this.asked;
    const at = performance.now();
    const text = this.form.words;
    this.pending += 1;
    const reply = await ask(kernel, 'state', [text]);
    this.pending -= 1;
    this.heard(reply, kernel);
    if (number !== this.asked) {
      return; // another question was asked meanwhile
    }
    if (reply.kind !== 'answer') {
      this.excuse(reply);
      return;
    }
    const { facts } = reply;
    if (facts.asking) {
      this.set({ notice: this.around.trans.__('The driver is slow to answer, and is still being asked…') });
      this.later(); // the kernel does other work in between
      return;
    }
    this.at = at; // of these facts, and not of others whose answer was not waited for
    const outcome = text === this.form.words ? (facts.plan ?? null) : this.form.outcome;
    this.set({ facts, outcome, notice: '', loss: facts.late ? this.around.loss() : '' });
    if (facts.gpus.length && !this.form.words) {
      const choice = facts.policy ? (read(facts.policy, USUAL) ?? USUAL) : USUAL;
      this.choose(facts.gpus.length > 1 ? choice : { ...choice, gpu: ALL });
    }
  }

  /** Apply what is chosen; where that cannot be, the form shows how it stands now. */
  async apply(): Promise<Done> {
    const { trans } = this.around;
    const { facts, words: text } = this.form;
    const how = this.ready;
    const moment = how && this.moment();
    if (moment) {
      await moment;
      if (text !== this.form.words) {
        return { applied: false, said: '' };
      }
    }
    const kernel = how && this.kernel();
    if (!kernel || !facts) {
      this.set({ done: how && this.around.kernel() ? this.nothing() : '' });
      return { applied: false, said: this.form.notice };
    }
    this.forget(); // an answer that is under way is about what was before
    this.set({ done: '' });
    const shown = this.form.outcome;
    this.pending += 1;
    try {
      const reply = await (how === 'restart' ? this.anew(kernel, text) : this.here(kernel, text, facts));
      if (!reply) {
        return { applied: false, said: '' };
      }
      this.heard(reply, kernel);
      if (reply.kind !== 'answer') {
        const said = this.excuse(reply);
        if (reply.kind === 'busy') {
          this.set({ done: trans.__('The kernel did not say in time whether this is in force.') });
        }
        return { applied: false, said };
      }
      const outcome = reply.facts;
      switch (outcome.outcome) {
        case 'applied':
          return { applied: true, said: this.report(outcome, shown) };
        case 'refused':
        case 'wrong':
          this.set({ outcome, notice: '' });
          if (how === 'restart') {
            await this.load();
          }
          return { applied: false, said: outcome.reason };
        default: {
          const said =
            outcome.outcome === 'expired'
              ? this.nothing()
              : trans.__('Nothing was changed: the kernel is no longer in the state that was shown.');
          await this.load();
          this.set({ done: said });
          return { applied: false, said };
        }
      }
    } finally {
      this.pending -= 1;
    }
  }

  choose(changed: Partial<Choice>): void {
    const { facts } = this.form;
    const choice = { ...this.form.choice, ...changed };
    if (choice.memory === 'limit') {
      choice.amount = allowed(choice.amount, choice.unit, this.measure(choice.gpu));
    }
    const text = facts ? words(choice, facts) : '';
    const outcome = this.refused && text !== this.form.words ? null : this.form.outcome; // it is about other words
    this.set({ choice, words: text, outcome, done: '' });
    this.later();
  }

  /** Give the amount in another unit. */
  convert(unit: Choice['unit']): void {
    const { choice } = this.form;
    this.choose(converted(choice, unit, this.measure(choice.gpu)));
  }

  /** Choose the words of a way out. */
  take(text: string): void {
    const choice = read(text, this.form.choice) ?? this.form.choice;
    this.set({ choice, words: text, done: '', outcome: null });
    this.later();
  }

  /** Say what was done beside this. */
  note(done: string): void {
    this.set({ done });
  }

  /** Go on when a kernel that was busy is idle; the end of a question of ours is no news. */
  resume(): void {
    this.ending = false;
    this.rested();
    if (this.form.notice && !this.timer && !this.pending) {
      this.later();
    }
  }

  private get refused(): boolean {
    const kind = this.form.outcome?.outcome;
    return kind === 'refused' || kind === 'wrong';
  }

  private here(kernel: Connection, text: string, { now }: Facts): Promise<Reply<Outcome>> {
    return ask(kernel, 'apply', [text, now + (performance.now() - this.at) / 1000 + PATIENCE], APPLY);
  }

  /** Restart the kernel, unless the policy cannot be had in a new one either; null where the user has left meanwhile. */
  private async anew(kernel: Connection, text: string): Promise<Reply<Outcome> | null> {
    const { trans, restart } = this.around;
    const reply = await ask(kernel, 'state', [text]);
    if (this.disposed) {
      return null;
    }
    if (reply.kind !== 'answer') {
      return reply.kind === 'busy' ? { kind: 'answer', facts: { outcome: 'expired' } } : reply;
    }
    const plan: Outcome = reply.facts.plan ?? { outcome: 'overtaken' };
    if (plan.outcome !== 'late') {
      return { kind: 'answer', facts: plan };
    }
    this.set({ notice: trans.__('The kernel is being restarted…') });
    return restart(fresh => ask(fresh, 'resume', [plan.policy, plan.others], START));
  }

  /** What there is to say where the kernel was asked for nothing, or too late. */
  private nothing(): string {
    return this.around.trans.__('Nothing was changed: the kernel was busy for too long.');
  }

  /** What there is to say of a policy that was applied; not what was shown of its plan before. */
  private report({ standing, loads, notes, said }: Planned, shown: Outcome | null): string {
    const { trans } = this.around;
    const known = shown && 'notes' in shown ? shown.notes.map(({ text }) => text) : [];
    const news = notes.map(({ text }) => text).filter(text => !known.includes(text));
    const loaded = loads ? trans.__('tfgpu_magic was loaded for it.') : '';
    return [standing, loaded, ...news, said].filter(Boolean).join('\n');
  }

  /** Wait for a kernel that is busy, but no longer than for a moment; null where it would answer now. */
  private moment(): Promise<void> | null {
    const kernel = this.around.kernel();
    if (!kernel || this.answers(kernel)) {
      return null;
    }
    this.forget();
    return new Promise(resolve => {
      this.rested = resolve;
      setTimeout(resolve, MOMENT);
    });
  }

  /** Whether a kernel would answer now: it is idle, or busy with questions of ours alone. */
  private answers(kernel: Connection): boolean {
    return isFree(kernel) || this.pending > 0 || this.ending;
  }

  /** The kernel, if it would answer now; else why not is shown. */
  private kernel(): Connection | null {
    const kernel = this.disposed ? null : this.around.kernel();
    if (kernel && this.answers(kernel)) {
      return kernel;
    }
    if (kernel) {
      this.excuse({ kind: 'busy' });
    } else {
      this.set({ notice: this.around.trans.__('This notebook has no kernel.') });
    }
    return null;
  }

  /** A kernel answers before it says that it is idle: until then it is busy with our question, and with no cell. */
  private heard(reply: Reply<object>, kernel: Connection): void {
    this.ending = reply.kind === 'answer' && !isFree(kernel);
  }

  /** Show why there is no answer, and return it. A kernel that is idle all the same is asked again. */
  private excuse(reply: Exclude<Reply<object>, { kind: 'answer' }>): string {
    const { trans, kernel } = this.around;
    const now = reply.kind === 'busy' && !this.disposed ? kernel() : null;
    if (now && isFree(now)) {
      this.later(); // a message was lost
    }
    const notice = {
      busy: trans.__('The kernel is busy. The dialog goes on when it is idle.'),
      missing: trans.__(
        'tfgpu_magic is not installed where this kernel runs, or is older than this page. Install the version of this page there.'
      ),
      failed: reply.kind === 'failed' ? trans.__('The kernel gave no answer: %1', reply.reason) : ''
    }[reply.kind];
    this.set({ notice });
    return notice;
  }

  private measure(gpu: string): ReturnType<typeof measure> {
    return measure(this.form.facts?.gpus ?? [], gpu);
  }

  private later(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.load(), PAUSE);
  }

  /** Ask nothing more by itself, and hear no answer that is under way. */
  private forget(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.asked += 1;
  }

  private set(changed: Partial<Form>): void {
    if (!this.disposed) {
      this.form = { ...this.form, ...changed };
      this.signal.emit();
    }
  }

  private form: Form = { facts: null, choice: USUAL, words: '', outcome: null, notice: '', loss: '', done: '' };
  private asked = 0;
  /** Questions of ours for which the kernel may be busy. */
  private pending = 0;
  /** Whether the kernel has answered one, and may be busy with it still. */
  private ending = false;
  /** Called when the kernel is idle. */
  private rested: () => void = () => undefined;
  /** When the facts were asked for, by this page's clock in milliseconds. */
  private at = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private disposed = false;
  private signal = new Signal<this, void>(this);
}
