// The widget's module for anywidget: one store for all views of a kernel's model.

import type { Model } from './model-store';
import { Stream } from './lab/stream';
import { server, world } from './page';
import { Table } from './table';
import { mount } from './view/mount';
import { ENGLISH } from './view/translation';

interface Widget {
  initialize(context: { model: Model }): () => void;
  render(context: { model: Model; el: HTMLElement }): () => void;
}

/** anywidget calls this once for each model. */
export default function (): Widget {
  let table: Table;
  return {
    initialize({ model }) {
      const url = server(document);
      table = new Table(model, url === null ? null : new Stream(world(url), ENGLISH));
      const hide = (): void => table.setHidden(document.hidden);
      hide();
      document.addEventListener('visibilitychange', hide);
      return () => {
        document.removeEventListener('visibilitychange', hide);
        table.dispose();
      };
    },
    render({ model, el }) {
      const refresh = (): void => table.refresh();
      const offered = (): { refresh: (() => void) | undefined } => ({ refresh: table.live ? undefined : refresh });
      const view = mount(el, table, { ...offered(), seen: seen => table.watch(el, seen) });
      const live = (): void => view.set(offered());
      model.on('change:live', live);
      return () => {
        model.off('change:live', live);
        view.dispose();
        table.watch(el, false);
      };
    }
  };
}
