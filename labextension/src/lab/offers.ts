// Draws an answer with the lines that it offers as buttons: each puts its line into a cell and runs it.

import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IRenderMime, IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { confirmRestart } from './actions';
import { replaced } from './lines';
import type { IGpuMemory } from './tokens';

const MIME = 'application/vnd.tfgpu-magic.offers+json';

/** What stands beside a text or HTML (`ground/answer.py`). */
interface Offers {
  /** The line that was refused; without one, a line comes in a cell of its own. */
  line?: string;
  /** A text in order: its words, and between them the lines that can be run. HTML has them in attributes. */
  parts?: (string | Offer)[];
}

interface Offer {
  line: string;
  /** Whether it restarts the kernel. */
  restarts: boolean;
}

/** Milliseconds that a cell that was refused may take to end; the message of an end may also be lost. */
const ENDING = 10_000;

export function addOffers(memory: IGpuMemory, registry: IRenderMimeRegistry): void {
  registry.addFactory({
    safe: false, // a button runs code: there is none in a notebook that is not trusted
    mimeTypes: [MIME],
    defaultRank: 40, // before HTML
    createRenderer: () => new OffersView(memory)
  });
}

/** A cell, with its run if it has one in this page. */
type Cell = NotebookPanel['content']['widgets'][number] & {
  outputArea?: { future?: { done: Promise<unknown> } | null };
};

class OffersView extends Widget implements IRenderMime.IRenderer {
  constructor(private memory: IGpuMemory) {
    super();
  }

  renderModel({ data }: IRenderMime.IMimeModel): Promise<void> {
    const said = data[MIME] as unknown as Offers;
    const html = data['text/html'];
    if (typeof html === 'string') {
      this.node.classList.add('jp-RenderedHTML', 'jp-RenderedHTMLCommon');
      this.node.innerHTML = html; // of a notebook that is trusted
      for (const code of this.node.querySelectorAll<HTMLElement>('code[data-tfgpu-line]')) {
        const offer = { line: code.dataset['tfgpuLine']!, restarts: 'tfgpuRestarts' in code.dataset };
        code.append(this.button(said, offer, ...code.childNodes));
      }
    } else {
      this.addClass('jp-RenderedText');
      this.node.dataset['mimeType'] = 'application/vnd.jupyter.stderr'; // it looks as other errors do
      const pre = document.createElement('pre');
      pre.append(
        ...(said.parts ?? []).map(part => (typeof part === 'string' ? part : this.button(said, part, part.line)))
      );
      this.node.replaceChildren(pre);
    }
    return Promise.resolve();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (!this.place()) {
      this.node.querySelectorAll('button').forEach(button => button.replaceWith(...button.childNodes)); // as in a console
    }
  }

  private button(said: Offers, offer: Offer, ...content: (string | Node)[]): HTMLButtonElement {
    const { trans } = this.memory;
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'tfgpu-offer';
    button.append(...content);
    button.title = offer.restarts
      ? trans.__('Put this line into a cell and run it: it restarts the kernel')
      : trans.__('Put this line into a cell and run it');
    button.dataset['lmSuppressShortcuts'] = 'true'; // Enter presses it, and does not edit the cell
    button.addEventListener('click', () => {
      this.taken ??= this.take(said, offer).finally(() => (this.taken = undefined)); // a second click changes nothing
    });
    return button;
  }

  private async take(said: Offers, { line, restarts }: Offer): Promise<void> {
    const notebook = this.place()?.notebook;
    if (said.line !== undefined) {
      await this.ended();
    }
    if (!notebook || (restarts && !(await confirmRestart(notebook, this.memory)))) {
      return;
    }
    const cell = this.place()?.cell; // it may have been deleted meanwhile
    if (!cell || this.memory.notebooks?.currentWidget !== notebook) {
      return; // of another notebook that the user has gone to, a cell would be run
    }
    const { content } = notebook;
    const place = content.widgets.indexOf(cell);
    const source = replaced(cell.model.sharedModel.getSource(), said.line ?? '', line);
    if (source === null) {
      content.model?.sharedModel.insertCell(place + 1, { cell_type: 'code', source: line, metadata: {} });
    } else {
      cell.model.sharedModel.setSource(source);
    }
    content.deselectAll();
    content.activeCellIndex = source === null ? place + 1 : place;
    content.activate(); // the button that had the focus goes with the output
    await this.memory.app.commands.execute('notebook:run-cell');
  }

  /** Wait until the cell that was refused has ended: before its end a kernel drops what it is sent. */
  private async ended(): Promise<void> {
    const done = this.place()?.cell.outputArea?.future?.done.catch(() => undefined); // a kernel that was restarted
    await Promise.race([done, new Promise(resolve => setTimeout(resolve, ENDING))]);
  }

  private taken: Promise<void> | undefined;

  /** The notebook and the cell whose output this is; null elsewhere. */
  private place(): { notebook: NotebookPanel; cell: Cell } | null {
    const around = (widget: Widget): boolean => widget.node.contains(this.node);
    const notebook = this.memory.notebooks?.find(around);
    const cell = notebook?.content.widgets.find(around);
    return notebook && cell ? { notebook, cell } : null;
  }
}
