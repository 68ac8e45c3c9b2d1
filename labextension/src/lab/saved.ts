// Shows the saved HTML of a live table whose widget state was not saved with the notebook, instead of an error.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { Widget } from '@lumino/widgets';
import type { Translation } from '../view/translation';

const VIEW = 'application/vnd.jupyter.widget-view+json';
const HTML = 'text/html';

/** How an output of this package begins, and how that of a widget without a model does. */
const OURS = '<div class="tfgpu"';
const ERROR = 'Error displaying widget';

/** The part of the renderers of a notebook's outputs that is used; their types differ between versions. */
interface Data {
  data: Record<string, unknown>;
}
interface Renderer extends Widget {
  renderModel(model: Data): Promise<void>;
}
interface Factory {
  mimeTypes: readonly string[];
  createRenderer(options: unknown): Renderer;
}
interface Registry {
  getFactory(mimeType: string): Factory | undefined;
  getRank(mimeType: string): number | undefined;
  addFactory(factory: Factory, rank?: number): void;
  createRenderer(mimeType: string): Renderer;
}

/** Add the fallback to all notebooks that are opened from now on. */
export function keepSaved(app: JupyterFrontEnd, trans: Translation): void {
  app.docRegistry.addWidgetExtension('Notebook', {
    createNew(panel: Widget & { content?: Widget & { rendermime?: Registry } }) {
      const registry = panel.content?.rendermime;
      if (registry) {
        watch(registry, trans);
      }
    }
  });
}

/** Widgets' factories come late, with their manager; all of them get the fallback. */
function watch(registry: Registry, trans: Translation): void {
  const add = registry.addFactory.bind(registry);
  registry.addFactory = (factory, rank) =>
    add(factory.mimeTypes.includes(VIEW) ? withFallback(factory, registry, trans) : factory, rank);
  const there = registry.getFactory(VIEW);
  if (there) {
    registry.addFactory(there, registry.getRank(VIEW));
  }
}

function withFallback(factory: Factory, registry: Registry, trans: Translation): Factory {
  return {
    ...factory,
    createRenderer(options) {
      const renderer = factory.createRenderer(options);
      const render = renderer.renderModel.bind(renderer);
      renderer.renderModel = async model => {
        await render(model);
        const html = model.data[HTML];
        if (!renderer.isDisposed && renderer.node.textContent.startsWith(ERROR) && String(html).startsWith(OURS)) {
          await fall(renderer, registry.createRenderer(HTML), model, trans);
        }
      };
      return renderer;
    }
  };
}

async function fall(renderer: Renderer, table: Renderer, model: Data, trans: Translation): Promise<void> {
  const said = document.createElement('p');
  said.className = 'tfgpu-saved';
  said.textContent = trans.__('As it was when its cell ran. Run the cell again for the live table.');
  await table.renderModel(model);
  renderer.node.replaceChildren(said, table.node);
  renderer.disposed.connect(() => table.dispose());
}
