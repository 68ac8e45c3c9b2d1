// The widget's module for anywidget: the view over the traits of a kernel's model.

import { ModelStore, type Model } from './kernel';
import { mount } from './view/mount';

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const store = new ModelStore(model);
  const refresh = (): void => model.send({ type: 'refresh' });
  const view = mount(el, store, { refresh: model.get('live') ? undefined : refresh });
  const live = (): void => view.set({ refresh: model.get('live') ? undefined : refresh });
  model.on('change:live', live);
  return () => {
    model.off('change:live', live);
    view.dispose();
    store.dispose();
  };
}

export default { render };
