// The dialog of the chooser, which stays open until what is chosen is in force, or the user leaves it.

import { Clipboard, Dialog, Notification } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { render } from 'lit-html';
import { cut, type Unit } from '../../view/format';
import type { Row } from '../../view/wire';
import { failed } from '../actions';
import { ending, SHOWN } from '../ending';
import { restart } from '../kernel';
import { rowOf } from '../kernel-rows';
import type { IGpuMemory } from '../tokens';
import { cell, isCell, line } from './choice';
import { form, prose, type Hands } from './form';
import { ChooserModel } from './model';
import type { Target } from './target';

/** Characters of a notification; JupyterLab cuts a longer one. */
const NOTIFICATION = 140;

/** Characters of a name in a notification. */
const BRIEF = 40;

/** Let the user choose a policy for a notebook. */
export async function choosePolicy(target: Target, memory: IGpuMemory): Promise<void> {
  const { stream, trans } = memory;
  const dialog = dialogOf(target, memory);
  stream.want('chooser', 'processes'); // what a restart gives back is among the rows
  try {
    await dialog.model.open(); // it is shown once the kernel has answered, so that the focus is at the choice
    await dialog.launch();
  } catch (error) {
    await failed(trans.__('The GPU memory of %1 was not set', cut(target.name, SHOWN)), error);
  } finally {
    stream.want('chooser', false);
    target.dispose();
  }
}

/** The dialog with its surroundings: what a restart costs, and how it is done. */
function dialogOf(target: Target, memory: IGpuMemory): ChooserDialog {
  const { stream, trans, settings } = memory;
  const unit = (): Unit => settings.now.unit;
  const id = (): string => target.kernel()?.id ?? '';
  // An idle kernel: it was asked just now, and what its row may say of that is no news.
  const row = (): Row => ({ ...rowOf(memory, id(), target.path), state: 'idle' });
  const model = new ChooserModel({
    trans,
    kernel: target.kernel,
    loss: () => ending(row(), stream.state, unit(), trans),
    restart: first => restart(memory, id(), first)
  });
  return new ChooserDialog(new Chooser(model, target, unit, trans), trans, target.name);
}

/** Draws the chooser's model, and puts the words where they are wanted. */
class Chooser extends Widget {
  constructor(
    readonly model: ChooserModel,
    target: Target,
    private unit: () => Unit,
    private trans: TranslationBundle
  ) {
    super();
    this.addClass('tfgpu-choose');
    const { notebook, statusChanged } = target;
    statusChanged.connect(this.follow);
    this.disposed.connect(() => statusChanged.disconnect(this.follow));
    if (notebook) {
      this.hands.insert = () => this.insert(notebook);
    }
    model.changed.connect(this.draw, this);
    this.draw();
  }

  override dispose(): void {
    this.model.dispose();
    render(null, this.node);
    super.dispose();
  }

  private follow = (_: unknown, status: string): void => {
    if (status === 'idle') {
      this.model.resume();
    }
  };

  private draw = (): void => {
    const focused = this.node.contains(document.activeElement);
    render(form(this.model.state, this.hands, this.unit(), this.trans), this.node);
    if (focused && !this.node.contains(document.activeElement)) {
      this.node.querySelector<HTMLElement>('input:checked')?.focus(); // the button that had it is gone
    }
  };

  private hands: Hands = {
    choose: changed => this.model.choose(changed),
    convert: unit => this.model.convert(unit),
    take: text => this.model.take(text),
    again: () => void this.model.load(),
    copy: () => {
      Clipboard.copyToSystem(line(this.model.state.words));
      this.model.note(this.trans.__('Copied'));
    }
  };

  private insert({ content: { widgets, model } }: NotebookPanel): void {
    const source = cell(this.model.state.words);
    const first = widgets[0]?.model.sharedModel;
    if (first && isCell(first.getSource())) {
      first.setSource(source);
    } else {
      model?.sharedModel.insertCell(0, { cell_type: 'code', source, metadata: {} });
    }
    this.model.note(this.trans.__('It is the first cell'));
  }
}

class ChooserDialog extends Dialog<unknown> {
  constructor(
    chooser: Chooser,
    private trans: TranslationBundle,
    private name: string
  ) {
    const title = trans.__('GPU memory of %1', cut(name, SHOWN));
    super({
      title,
      body: chooser,
      buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.okButton({ label: trans.__('Apply') })],
      focusNodeSelector: 'input:checked, button'
    });
    this.model = chooser.model;
    this.addClass('tfgpu-choose-dialog');
    this.node.ariaLabel = title;
    this.model.changed.connect(this.showReady, this);
    this.node.addEventListener('input', this.showReady); // the dialog has its own idea of when it is valid
    this.showReady();
  }

  readonly model: ChooserModel;

  override resolve(index?: number): void {
    if (index === 0) {
      super.resolve(index);
    } else if (this.mayApply) {
      void this.apply();
    }
  }

  override handleEvent(event: Event): void {
    if (event instanceof KeyboardEvent && event.type === 'keydown' && event.key === 'Enter') {
      const target = event.target as HTMLElement;
      // A button of ours is pressed, and a number that cannot be is mended by its field. No kernel is given up because
      // somebody typed a number and pressed Enter.
      const own = target.matches('button, :invalid') || this.model.ready === 'restart';
      if (own && target.closest('.tfgpu-choose')) {
        return;
      }
    }
    super.handleEvent(event);
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (!this.node.contains(document.activeElement)) {
      this.node.querySelector<HTMLElement>('.jp-mod-reject')?.focus(); // there is nothing to choose yet
    }
  }

  private async apply(): Promise<void> {
    const short = cut(this.name, SHOWN);
    const title = this.trans.__('The GPU memory of %1 was not set', short);
    this.working = true;
    this.showReady();
    try {
      const { applied, said } = await this.model.apply();
      if (applied) {
        this.reject(); // closes it, if the user has not; what a dialog returns is of no use here
        const brief = `${cut(this.name, BRIEF)}: ${said.replaceAll('`', '').replaceAll('\n', ' ')}`;
        if (brief.length <= NOTIFICATION) {
          Notification.success(brief, { autoClose: 8000 });
        } else {
          await tell(this.trans.__('The GPU memory of %1 is set', short), said, this.trans);
        }
      } else if (this.isDisposed && said) {
        await tell(title, said, this.trans);
      }
    } catch (error) {
      this.reject();
      await failed(title, error);
    } finally {
      this.working = false;
      if (!this.isDisposed) {
        this.showReady();
      }
    }
  }

  /** Whether what is chosen can be applied at this moment. */
  private get mayApply(): boolean {
    return !this.working && this.model.ready !== null && !this.node.querySelector(':invalid');
  }

  /** Show on the button what it would do. */
  private showReady = (): void => {
    const button = this.node.querySelector<HTMLButtonElement>('.jp-Dialog-footer .jp-mod-accept, .jp-mod-warn');
    const label = button?.querySelector('.jp-Dialog-buttonLabel');
    if (button && label) {
      const anew = this.model.ready === 'restart';
      button.disabled = !this.mayApply;
      button.classList.toggle('jp-mod-warn', anew);
      button.classList.toggle('jp-mod-accept', !anew);
      const text = anew ? this.trans.__('Restart and Apply') : this.trans.__('Apply');
      label.textContent = text;
      button.setAttribute('aria-label', text);
    }
  };

  private working = false;
}

/** Show a text, however long it is. */
async function tell(title: string, text: string, trans: TranslationBundle): Promise<void> {
  const body = new Widget();
  body.addClass('tfgpu-choose');
  render(prose(text), body.node);
  const dialog = new Dialog({ title, body, buttons: [Dialog.okButton({ label: trans.__('Close') })] });
  dialog.node.ariaLabel = title;
  await dialog.launch();
}
