// Puts the panel in the left sidebar; on Notebook's page of files, which has none, in a tab beside the files.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { TabPanel, type Widget } from '@lumino/widgets';

/** Among the left sidebar's widgets: below the running kernels, above the table of contents. */
const RANK = 250;

/** Put a panel in its place. */
export function place(app: JupyterFrontEnd, panel: Widget, type: string): void {
  app.shell.add(panel, 'left', { rank: RANK, type });
  void app.restored.then(() => {
    const tabs = panel.isAttached ? null : tabsOf(app);
    if (tabs) {
      panel.title.label = type;
      tabs.addWidget(panel);
    }
  });
}

/** Show a panel, wherever it is. */
export function show(app: JupyterFrontEnd, panel: Widget): void {
  const tabs = tabsOf(app);
  if (tabs?.widgets.includes(panel)) {
    tabs.currentWidget = panel;
    panel.activate();
  } else {
    app.shell.activateById(panel.id);
  }
}

function tabsOf(app: JupyterFrontEnd): TabPanel | null {
  for (const widget of app.shell.widgets('main')) {
    if (widget instanceof TabPanel) {
      return widget;
    }
  }
  return null;
}
