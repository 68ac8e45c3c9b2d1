// The widget's module for anywidget: one store for all views of a kernel's model.

import type { Model } from './model-store';
import { offered } from './shared';
import { Table } from './table';
import { mount } from './view/mount';

interface Widget {
  initialize(context: { model: Model }): () => void;
  render(context: { model: Model; el: HTMLElement }): () => void;
}

/** anywidget calls this once for each model. */
export default function (): Widget {
  let table: Table;
  return {
    initialize({ model }) {
      table = new Table(model, offered());
      model.send({ type: 'here' }); // in sight or not: the kernel waits a second for it (`notebook/widget.py`)
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
      const button = (): { refresh: (() => void) | undefined } => ({ refresh: table.live ? undefined : refresh });
      const view = mount(el, table, { trans: table.trans, ...button(), seen: seen => table.watch(el, seen) });
      const live = (): void => view.set(button());
      model.on('change:live', live);
      return () => {
        model.off('change:live', live);
        view.dispose();
        table.watch(el, false);
      };
    }
  };
}
