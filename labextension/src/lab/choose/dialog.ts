// The dialog around the chooser, which stays open until what is chosen is in force, or the user leaves it.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { cut, type Unit } from '../../view/format';
import type { Stream } from '../stream';
import { failed } from '../actions';
import { ending, SHOWN } from '../ending';
import { kernelOf, nameOf, type NotebookPanel } from '../notebook';
import { restart, rowOf } from '../restart';
import { Chooser, type Surroundings } from './chooser';

export interface Parts {
  app: JupyterFrontEnd;
  trans: TranslationBundle;
  stream: Stream;
  unit: () => Unit;
}

/** Let the user choose a policy for a notebook. */
export async function choosePolicy(notebook: NotebookPanel, { app, trans, stream, unit }: Parts): Promise<void> {
  const dialog = dialogOf(notebook, { app, trans, stream, unit });
  stream.want('chooser', 'processes'); // what a restart gives back is among the rows
  try {
    await dialog.chooser.load(); // it is shown once the kernel has answered, so that the focus is at the choice
    await dialog.launch();
  } catch (error) {
    await failed(trans.__('The GPU memory of %1 was not set', cut(nameOf(notebook), SHOWN)), error);
  } finally {
    stream.want('chooser', false);
  }
}

/** The dialog with its surroundings: what a restart costs, and how it is done. */
function dialogOf(notebook: NotebookPanel, { app, trans, stream, unit }: Parts): ChooserDialog {
  const id = (): string => kernelOf(notebook)?.id ?? '';
  const around: Surroundings = {
    notebook,
    trans,
    unit,
    loss: () => ending(rowOf(app, stream, id(), notebook.context.path), stream.state, unit(), trans),
    restart: first => restart(app, id(), first)
  };
  return new ChooserDialog(new Chooser(around), trans, cut(nameOf(notebook), SHOWN));
}

class ChooserDialog extends Dialog<unknown> {
  constructor(
    readonly chooser: Chooser,
    private trans: TranslationBundle,
    private name: string
  ) {
    super({
      title: trans.__('GPU memory of %1', name),
      body: chooser,
      buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.okButton({ label: trans.__('Apply') })],
      focusNodeSelector: 'input:checked'
    });
    this.addClass('tfgpu-choose-dialog');
    chooser.changed.connect(this.showReady);
    this.node.addEventListener('input', this.showReady); // the dialog has its own idea of when it is valid
    this.showReady();
  }

  override resolve(index?: number): void {
    if (index === 0) {
      super.resolve(index);
    } else if (!this.working && this.chooser.ready) {
      void this.apply();
    }
  }

  override handleEvent(event: Event): void {
    if (event instanceof KeyboardEvent && event.type === 'keydown' && event.key === 'Enter') {
      const target = event.target as HTMLElement;
      const inside = this.chooser.node.contains(target);
      // A button of ours is pressed. No kernel is given up because somebody typed a number and pressed Enter.
      if (inside && (target instanceof HTMLButtonElement || this.chooser.ready === 'restart')) {
        return;
      }
    }
    super.handleEvent(event);
  }

  private async apply(): Promise<void> {
    this.working = true;
    this.showReady();
    try {
      const done = await this.chooser.apply();
      if (done !== null) {
        super.resolve(1);
        Notification.success(`${this.name}: ${done}`, { autoClose: 8000 }); // also if the user has left meanwhile
      }
    } catch (error) {
      super.resolve(0);
      await failed(this.trans.__('The GPU memory of %1 was not set', this.name), error);
    } finally {
      this.working = false;
      if (!this.isDisposed) {
        this.showReady();
      }
    }
  }

  /** Show on the button what it would do. */
  private showReady = (): void => {
    const { ready } = this.chooser;
    const button = this.node.querySelector<HTMLButtonElement>('.jp-Dialog-footer .jp-mod-accept, .jp-mod-warn');
    const label = button?.querySelector('.jp-Dialog-buttonLabel');
    if (button && label) {
      const anew = ready === 'restart';
      button.disabled = this.working || ready === null;
      button.classList.toggle('jp-mod-warn', anew);
      button.classList.toggle('jp-mod-accept', !anew);
      const text = anew ? this.trans.__('Restart and Apply') : this.trans.__('Apply');
      label.textContent = text;
      button.setAttribute('aria-label', text);
    }
  };

  private working = false;
}
