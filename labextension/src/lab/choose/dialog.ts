// The dialog around the chooser, which stays open until what is chosen is in force, or the user leaves it.

import { Dialog, Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { render } from 'lit-html';
import { cut } from '../../view/format';
import type { Row } from '../../view/wire';
import type { IGpuMemory } from '../memory';
import { failed, type Surroundings } from '../actions';
import { ending, SHOWN } from '../ending';
import { kernelOf, nameOf, type NotebookPanel } from '../notebook';
import { restart, rowOf } from '../restart';
import { Chooser } from './chooser';
import { prose } from './form';
import { ChooserModel } from './model';

/** Characters of a notification; JupyterLab cuts a longer one. */
const NOTIFICATION = 140;

/** Characters of a name in a notification. */
const BRIEF = 40;

/** Let the user choose a policy for a notebook. */
export async function choosePolicy(notebook: NotebookPanel, { stream, surroundings }: IGpuMemory): Promise<void> {
  const { trans } = surroundings;
  const dialog = dialogOf(notebook, surroundings);
  stream.want('chooser', 'processes'); // what a restart gives back is among the rows
  try {
    await dialog.model.load(); // it is shown once the kernel has answered, so that the focus is at the choice
    await dialog.launch();
  } catch (error) {
    await failed(trans.__('The GPU memory of %1 was not set', cut(nameOf(notebook), SHOWN)), error);
  } finally {
    stream.want('chooser', false);
  }
}

/** The dialog with its surroundings: what a restart costs, and how it is done. */
function dialogOf(notebook: NotebookPanel, { app, trans, store, unit }: Surroundings): ChooserDialog {
  const id = (): string => kernelOf(notebook)?.id ?? '';
  // An idle kernel: it was asked just now, and what its row may say of that is no news.
  const row = (): Row => ({ ...rowOf(app, store, id(), notebook.context.path), state: 'idle' });
  const model = new ChooserModel({
    trans,
    kernel: () => kernelOf(notebook),
    loss: () => ending(row(), store.state, unit(), trans),
    restart: first => restart(app, id(), first)
  });
  return new ChooserDialog(new Chooser(model, notebook, unit, trans), trans, nameOf(notebook));
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
      } else if (this.isDisposed) {
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
