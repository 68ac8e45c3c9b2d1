// The status bar's item: the fullest GPU. It is hidden where there is no GPU, or the user has turned it off.

import { Signal, type ISignal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { html, render } from 'lit-html';
import { share, type Unit } from '../view/format';
import { fullest, labels, taken } from '../view/model';
import type { Gpu, State } from '../view/wire';
import type { IGpuMemory } from './tokens';

export class StatusItem extends Widget {
  constructor(private memory: IGpuMemory) {
    super();
    this.addClass('tfgpu-status');
    this.unsubscribe = memory.stream.subscribe(() => this.draw());
    memory.settings.follow(({ unit, statusBar }) => {
      this.unit = unit;
      this.wanted = statusBar;
      this.draw();
      memory.stream.want('status bar', statusBar && 'memory');
    });
  }

  /** Whether it is visible. */
  get active(): boolean {
    return this.shown;
  }

  get activeChanged(): ISignal<this, void> {
    return this.changed;
  }

  override dispose(): void {
    this.unsubscribe();
    render(null, this.node);
    Signal.clearData(this);
    super.dispose();
  }

  private draw(): void {
    const { state, link } = this.memory.stream;
    const full = state && !state.error ? fullest(state, this.label) : null;
    this.label = full;
    const shown = this.wanted && full !== null;
    if (shown && state && !document.hidden) {
      this.drawGpu(state, full, state.stale !== undefined || link.kind !== 'live');
    }
    if (shown !== this.shown) {
      this.shown = shown;
      this.changed.emit();
    }
  }

  private drawGpu(state: State, label: string, old: boolean): void {
    const { unit, memory } = this;
    const gpu = state.gpus[label]!;
    const percent = Math.min(100, (100 * (taken(gpu) ?? 0)) / (gpu.total ?? 1));
    render(
      html`<button
        class="tfgpu-status-button${old ? ' tfgpu-status-old' : ''}"
        type="button"
        @click=${() => memory.open?.()}
        @pointerenter=${this.describe}
        @focus=${this.describe}
      >
        <span>${memory.trans.__('GPU %1', label)}</span>
        <span class="tfgpu-status-bar" aria-hidden="true"><span style="width:${percent.toFixed(0)}%"></span></span>
        <span>${share(gpu.used, gpu.total, unit)}</span>
      </button>`,
      this.node
    );
  }

  /** Write the title on hover only: writing it each second costs as much as the rest of the item. */
  private describe = (event: Event): void => {
    const { trans, stream, open } = this.memory;
    const { state } = stream;
    const lines = (state ? labels(state) : []).map(name =>
      trans.__('GPU %1: %2', name, gpuText(state!.gpus[name]!, this.unit))
    );
    const all = open ? [...lines, trans.__('Click for the notebooks that hold it')] : lines;
    (event.currentTarget as HTMLElement).title = all.join('\n');
  };

  private unit: Unit = 'GiB';
  private wanted = true;
  private shown = false;
  private label: string | null = null;
  private changed = new Signal<this, void>(this);
  private unsubscribe: () => void;
}

function gpuText(gpu: Gpu, unit: Unit): string {
  return gpu.used === undefined && gpu.error ? gpu.error.slice(0, 100) : share(gpu.used, gpu.total, unit);
}
