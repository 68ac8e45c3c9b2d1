// The sidebar's widget: the view, in a box that scrolls, above a button for the notebook at hand.
// It reads figures only while it is visible.

import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { html, nothing, render } from 'lit-html';
import type { Options } from '../view/options';
import { mount, type View } from '../view/mount';
import type { Stream } from './stream';

/** What can be done for the notebook at hand, or why it cannot. */
export interface Offer {
  label: string;
  obstacle: string;
  act: () => void;
}

export class Panel extends Widget {
  constructor(
    private stream: Stream,
    private options: Options
  ) {
    super();
    this.addClass('tfgpu-panel');
    this.node.tabIndex = -1;
    this.box.className = 'tfgpu-panel-box';
    this.box.tabIndex = -1; // the view gives it the focus of what is gone
    this.foot.className = 'tfgpu-panel-foot';
    this.node.append(this.box, this.foot);
  }

  /** Change some of the view's options. */
  set(options: Options): void {
    this.options = { ...this.options, ...options };
    this.view?.set(options);
  }

  /** Show what can be done for the notebook at hand; null where there is none. */
  offer(offer: Offer | null): void {
    this.foot.hidden = !offer;
    render(
      offer
        ? html`<button
              class="tfgpu-panel-offer"
              type="button"
              ?disabled=${offer.obstacle !== ''}
              title=${offer.obstacle || nothing}
              @click=${offer.act}
            >
              ${offer.label}</button
            >${offer.obstacle ? html`<span class="tfgpu-panel-obstacle">${offer.obstacle}</span>` : nothing}`
        : nothing,
      this.foot
    );
  }

  override dispose(): void {
    this.look(false);
    this.view?.dispose();
    this.view = null;
    super.dispose();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.view ??= mount(this.box, this.stream, this.options);
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
    this.stream.want('panel', seen && 'processes');
  }

  private box = document.createElement('div');
  private foot = document.createElement('div');
  private view: View | null = null;
}
