// The panel: the sidebar's widget, which reads figures only while it is visible, its place in the page, and its commands.

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';
import type { Message } from '@lumino/messaging';
import { TabPanel, Widget } from '@lumino/widgets';
import { html, nothing, render } from 'lit-html';
import { mount, type View } from '../view/mount';
import type { Options } from '../view/options';
import type { Row } from '../view/wire';
import { chipIcon, CHOOSE, OPEN, type IGpuMemory } from './tokens';

/** The view, in a box that scrolls, above a button for the current notebook. */
export class Panel extends Widget {
  constructor(private memory: IGpuMemory) {
    super();
    const { app, trans, actions, settings } = memory;
    this.id = 'tfgpu-magic-panel';
    this.title.icon = chipIcon;
    this.title.caption = trans.__('GPU Memory');
    this.addClass('tfgpu-panel');
    this.node.tabIndex = -1;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU memory'));
    this.box.className = 'tfgpu-panel-box';
    this.box.tabIndex = -1; // the view gives it the focus of what is gone
    this.foot.className = 'tfgpu-panel-foot';
    this.node.append(this.box, this.foot);
    this.options = {
      trans,
      actions,
      ordered: order => settings.keep({ order }),
      spanned: span => settings.keep({ span })
    };
    app.commands.commandChanged.connect(this.drawFoot);
    this.drawFoot(app.commands);
    settings.follow(({ unit, order, span, others, history, notes, sensors }) =>
      this.set({ unit, order, span, show: { others, history, notes, sensors } })
    );
  }

  /** Change some of the view's options. */
  set(options: Options): void {
    this.options = { ...this.options, ...options };
    this.view?.set(options);
  }

  /** Draw the chooser's command as a button for the current notebook, or why it cannot be used; else nothing. */
  private drawFoot = (commands: CommandRegistry, changed?: CommandRegistry.ICommandChangedArgs): void => {
    if (changed && changed.id !== CHOOSE) {
      return;
    }
    const chooses = commands.hasCommand(CHOOSE);
    if (chooses !== 'choose' in (this.options.actions ?? {})) {
      this.set({ actions: { ...this.memory.actions, ...(chooses && { choose: this.choose }) } });
    }
    const named = { named: true };
    const obstacle = commands.isEnabled(CHOOSE, named) ? '' : commands.caption(CHOOSE, named);
    this.foot.hidden = !commands.hasCommand(CHOOSE) || !commands.isVisible(CHOOSE, named);
    render(
      this.foot.hidden
        ? nothing
        : html`<button
              class="tfgpu-panel-offer"
              type="button"
              ?disabled=${obstacle !== ''}
              title=${obstacle || nothing}
              @click=${() => void commands.execute(CHOOSE)}
            >
              ${commands.label(CHOOSE, named)}</button
            >${obstacle ? html`<span class="tfgpu-panel-obstacle">${obstacle}</span>` : nothing}`,
      this.foot
    );
  };

  private choose = ({ kernel = '' }: Row): void => void this.memory.app.commands.execute(CHOOSE, { kernel });

  override dispose(): void {
    this.look(false);
    this.memory.app.commands.commandChanged.disconnect(this.drawFoot);
    this.view?.dispose();
    this.view = null;
    super.dispose();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.view ??= mount(this.box, this.memory.stream, this.options);
    this.look(this.isVisible);
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.look(true);
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.look(false);
  }

  protected override onBeforeDetach(message: Message): void {
    super.onBeforeDetach(message);
    this.look(false);
  }

  /** Focus the panel, from which Tab leads on. */
  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.focus();
  }

  private look(seen: boolean): void {
    this.memory.stream.want('panel', seen && 'processes');
  }

  private options: Options;
  private box = document.createElement('div');
  private foot = document.createElement('div');
  private view: View | null = null;
}

/** Among the left sidebar's widgets: below the running kernels, above the table of contents. */
const RANK = 250;

/** Put a panel in its place. */
export function place(app: JupyterFrontEnd, panel: Widget): void {
  const type = panel.title.caption;
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
function show(app: JupyterFrontEnd, panel: Widget): void {
  const tabs = tabsOf(app);
  if (tabs?.widgets.includes(panel)) {
    tabs.currentWidget = panel;
    panel.activate();
    return;
  }
  if (!panel.isAttached && !tabs) {
    place(app, panel); // it was moved into the main area, and all tabs there were closed
  }
  app.shell.activateById(panel.id);
}

function tabsOf(app: JupyterFrontEnd): TabPanel | null {
  for (const widget of app.shell.widgets('main')) {
    if (widget instanceof TabPanel) {
      return widget;
    }
  }
  return null;
}

/** Add the panel's command, and its place in the palette. */
export function addCommand({ app, trans }: IGpuMemory, panel: Widget, palette: ICommandPalette | null): void {
  app.commands.addCommand(OPEN, {
    label: trans.__('Show GPU Memory'),
    caption: trans.__('Show who holds the memory of which GPU, by notebook'),
    icon: chipIcon,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => {
      show(app, panel);
      requestAnimationFrame(() => panel.activate()); // the palette returns the focus first
    }
  });
  palette?.addItem({ command: OPEN, category: trans.__('GPU') });
}
