// The chooser's widget: draws its model, and puts the words where they are wanted.

import { Clipboard } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';
import { render } from 'lit-html';
import type { Unit } from '../../view/format';
import type { NotebookPanel } from '../notebook';
import { form, type Hands } from './form';
import type { ChooserModel } from './model';
import { cell, isCell, line } from './words';

export class Chooser extends Widget {
  constructor(
    readonly model: ChooserModel,
    private notebook: NotebookPanel,
    private unit: () => Unit,
    private trans: TranslationBundle
  ) {
    super();
    this.addClass('tfgpu-choose');
    const { sessionContext } = notebook.context;
    sessionContext.statusChanged.connect(this.follow);
    this.disposed.connect(() => sessionContext.statusChanged.disconnect(this.follow));
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
    },
    insert: () => {
      const { widgets, model } = this.notebook.content;
      const source = cell(this.model.state.words);
      const first = widgets[0]?.model.sharedModel;
      if (first && isCell(first.getSource())) {
        first.setSource(source);
      } else {
        model?.sharedModel.insertCell(0, { cell_type: 'code', source, metadata: {} });
      }
      this.model.note(this.trans.__('It is the first cell'));
    }
  };
}
