// Makes the lines that a refusal offers into buttons, each of which puts its line into the refused cell and runs it.
//
// A cell's reply names the lines beside the text (`offers.py`); of a saved notebook there is the text only.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Kernel } from '@jupyterlab/services';
import type { Translation } from '../view/translation';
import { replaced } from './choose/words';
import { link } from './link';
import type { Cell, NotebookPanel } from './notebook';

/** What a reply says, as `offers.py` writes it. */
interface Offered {
  source: string;
  /** The line that was refused. */
  line: string;
  offers: string[];
}

const SOURCE = 'tfgpu_magic';

/** The flag of a line that restarts its kernel. */
const RESTART = ' --restart';

export interface Parts {
  app: JupyterFrontEnd;
  trans: Translation;
  /** Asks whether the notebook's kernel may be restarted. */
  mayRestart: (notebook: NotebookPanel) => Promise<boolean>;
}

/** Offer buttons in all notebooks that are opened from now on. */
export function followOffers(parts: Parts): void {
  parts.app.docRegistry.addWidgetExtension('Notebook', {
    createNew(panel) {
      const notebook = panel as unknown as NotebookPanel;
      const { sessionContext } = notebook.context;
      const offers = new Offers(notebook, parts);
      sessionContext.sessionChanged.connect((_, { oldValue, newValue }) => {
        oldValue?.anyMessage.disconnect(offers.hear);
        newValue?.anyMessage.connect(offers.hear);
      });
      sessionContext.session?.anyMessage.connect(offers.hear);
      notebook.disposed.connect(() => {
        sessionContext.session?.anyMessage.disconnect(offers.hear);
        offers.dispose();
      });
    }
  });
}

class Offers {
  constructor(
    private notebook: NotebookPanel,
    private parts: Parts
  ) {}

  dispose(): void {
    this.shown.forEach(stop => stop());
    this.shown.clear();
  }

  hear = (_: unknown, { msg, direction }: Kernel.IAnyMessageArgs): void => {
    if (direction === 'send' && msg.header.msg_type === 'execute_request') {
      const id = (msg.metadata as { cellId?: unknown }).cellId;
      if (typeof id === 'string') {
        this.running.set(msg.header.msg_id, id);
        this.forget(id);
      }
    } else if (direction === 'recv' && msg.header.msg_type === 'execute_reply') {
      const request = (msg.parent_header as { msg_id?: string }).msg_id ?? '';
      const id = this.running.get(request);
      this.running.delete(request);
      const payload = (msg.content as { payload?: Offered[] }).payload ?? [];
      const offered = payload.find(({ source }) => source === SOURCE);
      const cell = this.notebook.content.widgets.find(one => one.model.id === id);
      if (offered && cell) {
        this.show(cell, offered);
      }
    }
  };

  /** Turn the lines into buttons as they come: the text may come later than the reply, and be drawn again. */
  private show(cell: Cell, offered: Offered): void {
    const { trans } = this.parts;
    const describe = (line: string): string =>
      line.endsWith(RESTART)
        ? trans.__('Put this line into the cell and run it: it restarts the kernel')
        : trans.__('Put this line into the cell and run it');
    const take = (line: string): void => void this.take(cell, offered, line);
    const draw = (): void => {
      cell.node
        .querySelectorAll<HTMLElement>('.jp-OutputArea-output pre')
        .forEach(text => link(text, offered.offers, { describe, take }));
    };
    const observer = new MutationObserver(() => {
      observer.disconnect(); // what it draws is no news
      draw();
      observer.observe(cell.node, { childList: true, subtree: true });
    });
    draw();
    observer.observe(cell.node, { childList: true, subtree: true });
    const stop = (): void => observer.disconnect();
    this.shown.set(cell.model.id, stop);
    cell.disposed.connect(stop);
  }

  private async take(cell: Cell, offered: Offered, line: string): Promise<void> {
    if (line.endsWith(RESTART) && !(await this.parts.mayRestart(this.notebook))) {
      return;
    }
    const { content } = this.notebook;
    const place = content.widgets.indexOf(cell);
    if (place < 0) {
      return; // it was deleted meanwhile
    }
    const source = replaced(cell.model.sharedModel.getSource(), offered.line, line);
    if (source === null) {
      content.model?.sharedModel.insertCell(place + 1, { cell_type: 'code', source: line, metadata: {} });
    } else {
      cell.model.sharedModel.setSource(source);
    }
    content.deselectAll();
    content.activeCellIndex = source === null ? place + 1 : place;
    content.activate(); // the button that had the focus goes with the output
    await this.parts.app.commands.execute('notebook:run-cell');
  }

  private forget(id: string): void {
    this.shown.get(id)?.();
    this.shown.delete(id);
  }

  /** Cells by the requests that run them. */
  private running = new Map<string, string>();
  /** What ends the buttons of a cell. */
  private shown = new Map<string, () => void>();
}
