// Draws a refusal with the lines that it offers as buttons: each puts its line into the refused cell and runs it.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { IRenderMime, IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { confirmRestart } from './actions';
import { replaced } from './choose/words';
import type { IGpuMemory } from './memory';
import { asNotebook, type Cell, type NotebookPanel } from './notebook';
import { places } from './places';

const MIME = 'application/vnd.tfgpu-magic.refusal+json';

/** What `offers.py` sends beside the text. */
interface Refusal {
  /** The line that was refused. */
  line: string;
  offers: string[];
}

/** The flag of a line that restarts its kernel. */
const RESTART = ' --restart';

export function addOffers(app: JupyterFrontEnd, memory: IGpuMemory, registry: IRenderMimeRegistry): void {
  registry.addFactory({
    safe: false, // a button runs code: there is none in a notebook that is not trusted
    mimeTypes: [MIME],
    defaultRank: 60,
    createRenderer: () => new RefusalView(app, memory)
  });
}

class RefusalView extends Widget implements IRenderMime.IRenderer {
  constructor(
    private app: JupyterFrontEnd,
    private memory: IGpuMemory
  ) {
    super();
    this.addClass('jp-RenderedText');
    this.node.dataset['mimeType'] = 'application/vnd.jupyter.stderr'; // it looks as other errors do
  }

  renderModel({ data }: IRenderMime.IMimeModel): Promise<void> {
    const refusal = data[MIME] as unknown as Refusal;
    const text = data['text/plain'] as string;
    const pre = document.createElement('pre');
    let end = 0;
    for (const { start, line } of places(text, refusal.offers)) {
      pre.append(text.slice(end, start), this.button(refusal, line));
      end = start + line.length;
    }
    pre.append(text.slice(end));
    this.node.replaceChildren(pre);
    return Promise.resolve();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (!this.place()) {
      this.node.querySelectorAll('button').forEach(button => button.replaceWith(button.textContent)); // as in a console
    }
  }

  private button(refusal: Refusal, line: string): HTMLButtonElement {
    const { trans } = this.memory;
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'tfgpu-offer';
    button.textContent = line;
    button.title = line.endsWith(RESTART)
      ? trans.__('Put this line into the cell and run it: it restarts the kernel')
      : trans.__('Put this line into the cell and run it');
    button.dataset['lmSuppressShortcuts'] = 'true'; // Enter presses it, and does not edit the cell
    button.addEventListener('click', () => void this.take(refusal, line));
    return button;
  }

  private async take(refusal: Refusal, line: string): Promise<void> {
    const { surroundings } = this.memory;
    const notebook = this.place()?.notebook;
    if (!notebook || (line.endsWith(RESTART) && !(await confirmRestart(notebook, surroundings)))) {
      return;
    }
    const cell = this.place()?.cell; // it may have been deleted meanwhile
    if (!cell) {
      return;
    }
    const { content } = notebook;
    const place = content.widgets.indexOf(cell);
    const source = replaced(cell.model.sharedModel.getSource(), refusal.line, line);
    if (source === null) {
      content.model?.sharedModel.insertCell(place + 1, { cell_type: 'code', source: line, metadata: {} });
    } else {
      cell.model.sharedModel.setSource(source);
    }
    content.deselectAll();
    content.activeCellIndex = source === null ? place + 1 : place;
    content.activate(); // the button that had the focus goes with the output
    await this.app.commands.execute('notebook:run-cell');
  }

  /** The notebook and the cell whose output this is; null elsewhere. */
  private place(): { notebook: NotebookPanel; cell: Cell } | null {
    let cell: Widget | null = null;
    for (let widget: Widget | null = this.parent; widget; widget = widget.parent) {
      cell = widget.hasClass('jp-CodeCell') ? widget : cell;
      const notebook = asNotebook(widget);
      if (notebook && cell) {
        return { notebook, cell: cell as Cell };
      }
    }
    return null;
  }
}
