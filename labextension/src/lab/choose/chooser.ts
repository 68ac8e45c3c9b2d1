// The chooser's widget: asks the kernel as the choice changes, and has what is chosen applied.

import { Clipboard } from '@jupyterlab/apputils';
import type { Kernel } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { render } from 'lit-html';
import type { Unit } from '../../view/format';
import { kernelOf, type NotebookPanel } from '../notebook';
import { allowed, converted, measure } from './amounts';
import { form, type Form, type Hands } from './form';
import { ask, isFree, literal, PATIENCE, type Facts, type Outcome, type Planned, type Reply } from './kernel';
import { ALL, cell, isCell, MAGIC, read, words, type Choice } from './words';

/** Milliseconds after a change until the kernel is asked. */
const PAUSE = 250;

const USUAL: Choice = { gpu: ALL, memory: 'growth', amount: 40, unit: '%', grow: false };

export interface Surroundings {
  notebook: NotebookPanel;
  trans: TranslationBundle;
  unit: () => Unit;
  /** What a restart of the kernel discards and gives back. */
  loss: () => string;
  /** Restarts the kernel, and has it asked something first. */
  restart: <T>(first: (kernel: Kernel.IKernelConnection) => Promise<T>) => Promise<T | undefined>;
}

export class Chooser extends Widget {
  constructor(private around: Surroundings) {
    super();
    this.addClass('tfgpu-choose');
    const { sessionContext } = around.notebook.context;
    sessionContext.statusChanged.connect(this.follow);
    this.disposed.connect(() => sessionContext.statusChanged.disconnect(this.follow));
    this.draw();
  }

  /** Whether what is chosen can be applied now: here, or by a restart; else null. */
  get ready(): 'apply' | 'restart' | null {
    const { facts, outcome, notice } = this.state;
    const refused = outcome?.outcome === 'refused' || outcome?.outcome === 'wrong';
    return !facts?.gpus.length || notice || refused ? null : facts.late ? 'restart' : 'apply';
  }

  /** Emitted when `ready` may have changed. */
  get changed(): ISignal<this, void> {
    return this.signal;
  }

  override dispose(): void {
    window.clearTimeout(this.timer);
    render(null, this.node);
    Signal.clearData(this);
    super.dispose();
  }

  /** Ask the kernel what there is, and what the choice would do. */
  async load(): Promise<void> {
    const first = !this.state.facts;
    const text = this.state.words;
    const kernel = this.kernel();
    if (!kernel) {
      return;
    }
    const number = ++this.asked;
    this.at = performance.now();
    const calls = { state: 'state()', ...(first ? {} : { plan: `plan(${literal(text)})` }) };
    this.pending += 1;
    const reply = await ask<{ state: Facts; plan?: Outcome }>(kernel, calls as Record<'state' | 'plan', string>);
    this.pending -= 1;
    if (this.isDisposed || number !== this.asked) {
      return; // another question was asked meanwhile
    }
    if (reply.kind !== 'answer') {
      this.set({ notice: this.excuse(reply) });
      return;
    }
    const { state, plan } = reply.facts;
    this.set({ facts: state, outcome: plan ?? null, notice: '', loss: state.late ? this.around.loss() : '' });
    if (first) {
      const choice = state.policy ? (read(state.policy, USUAL) ?? USUAL) : USUAL;
      this.choose(state.gpus.length > 1 ? choice : { ...choice, gpu: ALL });
    }
  }

  /** Apply what is chosen. @returns what is to be said of it; null where it was not applied, and this says why. */
  async apply(): Promise<string | null> {
    const { facts, words: text } = this.state;
    const how = this.ready;
    const kernel = how && this.kernel();
    if (!kernel || !facts) {
      return null;
    }
    this.asked += 1; // an answer that is under way is about what was before
    window.clearTimeout(this.timer);
    this.timer = 0;
    this.pending += 1;
    try {
      const outcome = await (how === 'restart' ? this.anew(kernel, text) : this.here(kernel, text, facts));
      if (outcome?.outcome === 'applied') {
        return this.applied(outcome);
      }
      if (outcome) {
        this.set({ outcome, notice: '' });
        if (outcome.outcome === 'late' || how === 'restart') {
          await this.load();
        }
      }
      return null;
    } finally {
      this.pending -= 1;
    }
  }

  private async here(kernel: Kernel.IKernelConnection, text: string, facts: Facts): Promise<Outcome | null> {
    const before = facts.now + (performance.now() - this.at) / 1000 + PATIENCE;
    const reply = await ask<{ done: Outcome }>(kernel, { done: `apply(${literal(text)}, ${before})` });
    return this.heard(reply);
  }

  /** Restart the kernel, unless the policy cannot be had in a new one either. */
  private async anew(kernel: Kernel.IKernelConnection, text: string): Promise<Outcome | null> {
    const planned = this.heard(await ask<{ done: Outcome }>(kernel, { done: `plan(${literal(text)})` }));
    if (planned?.outcome !== 'late') {
      return planned;
    }
    const { trans, restart } = this.around;
    this.set({ notice: trans.__('The kernel is being restarted…') });
    const reply = await restart(fresh =>
      ask<{ done: Outcome }>(fresh, { done: `resume(${literal(planned.policy)})` }, 60)
    );
    return reply ? this.heard(reply) : null;
  }

  private heard(reply: Reply<{ done: Outcome }>): Outcome | null {
    if (reply.kind === 'answer') {
      return reply.facts.done;
    }
    this.set({ notice: this.excuse(reply) });
    return null;
  }

  private applied({ standing, loads, said }: Planned): string {
    const { trans } = this.around;
    const loaded = loads ? trans.__('The extension tfgpu_magic was loaded in this kernel for it.') : '';
    return [standing, loaded, said].filter(Boolean).join(' ').replaceAll('`', '');
  }

  /** The kernel, if it would answer now; else why not is shown. */
  private kernel(): Kernel.IKernelConnection | null {
    const { notebook, trans } = this.around;
    const kernel = kernelOf(notebook);
    if (kernel && (isFree(kernel) || this.pending)) {
      return kernel;
    }
    this.set({ notice: kernel ? this.excuse({ kind: 'busy' }) : trans.__('This notebook has no kernel.') });
    return null;
  }

  private excuse(reply: Exclude<Reply<object>, { kind: 'answer' }>): string {
    const { trans } = this.around;
    switch (reply.kind) {
      case 'busy':
        return trans.__('The kernel is busy. This goes on when its cell has ended.');
      case 'missing':
        return trans.__('tfgpu_magic is not installed where this kernel runs, or is older than this page.');
      case 'failed':
        return trans.__('The kernel gave no answer: %1', reply.reason);
    }
  }

  /** Go on when a kernel that was busy is idle. */
  private follow = (_: unknown, status: string): void => {
    // The end of a question of ours is no news.
    if (status === 'idle' && this.state.notice && !this.timer && !this.pending) {
      this.later();
    }
  };

  private later(): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      void this.load();
    }, PAUSE);
  }

  private choose(changed: Partial<Choice>): void {
    const { facts } = this.state;
    const choice = { ...this.state.choice, ...changed };
    choice.amount = allowed(choice.amount, choice.unit, measure(facts?.gpus ?? [], choice.gpu));
    const text = facts ? words(choice, facts) : '';
    this.set({ choice, words: text, done: '' });
    this.later();
  }

  private hands: Hands = {
    choose: changed => this.choose(changed),
    unit: unit => {
      const { choice, facts } = this.state;
      this.choose(converted(choice, unit, measure(facts?.gpus ?? [], choice.gpu)));
    },
    take: text => {
      this.set({ choice: read(text, this.state.choice) ?? this.state.choice, words: text, done: '', outcome: null });
      this.later();
    },
    copy: () => {
      Clipboard.copyToSystem(`${MAGIC} ${this.state.words}`);
      this.set({ done: this.around.trans.__('Copied') });
    },
    insert: () => {
      const { notebook, trans } = this.around;
      const source = cell(this.state.words);
      const first = notebook.content.widgets[0]?.model.sharedModel;
      if (first && isCell(first.getSource())) {
        first.setSource(source);
      } else {
        notebook.content.model?.sharedModel.insertCell(0, { cell_type: 'code', source, metadata: {} });
      }
      this.set({ done: trans.__('It is the first cell') });
    }
  };

  private set(changed: Partial<Form>): void {
    if (this.isDisposed) {
      return; // the user has left, and an answer came afterwards
    }
    this.state = { ...this.state, ...changed };
    this.draw();
    this.signal.emit();
  }

  private draw(): void {
    render(form(this.state, this.hands, this.around.unit(), this.around.trans), this.node);
  }

  private state: Form = {
    facts: null,
    choice: USUAL,
    words: '',
    outcome: null,
    notice: '',
    loss: '',
    done: ''
  };
  private asked = 0;
  /** Questions of ours for which the kernel may be busy. */
  private pending = 0;
  private at = 0;
  private timer = 0;
  private signal = new Signal<this, void>(this);
}
