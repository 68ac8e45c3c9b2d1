// The sidebar's widget: the view, in a box that scrolls; it reads figures only while it is visible.

import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import type { Options } from '../view/options';
import { mount, type View } from '../view/mount';
import type { Stream } from './stream';

export class Panel extends Widget {
  constructor(
    private stream: Stream,
    private options: Options
  ) {
    super();
    this.addClass('tfgpu-panel');
    this.node.tabIndex = -1;
  }

  /** Change some of the view's options. */
  set(options: Options): void {
    this.options = { ...this.options, ...options };
    this.view?.set(options);
  }

  override dispose(): void {
    this.look(false);
    this.view?.dispose();
    this.view = null;
    super.dispose();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.view ??= mount(this.node, this.stream, this.options);
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

  private view: View | null = null;
}
