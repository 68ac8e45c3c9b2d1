// The status bar's item: the fullest GPU. It is hidden where there is no GPU, or the user has turned it off.

import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { html, render } from 'lit-html';
import { share, type Unit } from '../view/format';
import { fullest, labels } from '../view/model';
import type { Store } from '../view/store';
import type { Gpu, State } from '../view/wire';

export class StatusItem extends Widget {
  /** @param opened - called when it is clicked. */
  constructor(
    private store: Store,
    private trans: TranslationBundle,
    private opened: () => void
  ) {
    super();
    this.addClass('tfgpu-status');
    this.unsubscribe = store.subscribe(() => this.draw());
  }

  set(options: { unit: Unit; wanted: boolean }): void {
    this.unit = options.unit;
    this.wanted = options.wanted;
    this.draw();
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
    const { state, link } = this.store;
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
    const { trans, unit } = this;
    const gpu = state.gpus[label]!;
    const percent = Math.min(100, (100 * (gpu.used ?? 0)) / (gpu.total ?? 1));
    render(
      html`<button
        class="tfgpu-status-button${old ? ' tfgpu-status-old' : ''}"
        type="button"
        @click=${this.opened}
        @pointerenter=${this.describe}
        @focus=${this.describe}
      >
        <span>${trans.__('GPU %1', label)}</span>
        <span class="tfgpu-status-bar" aria-hidden="true"><span style="width:${percent.toFixed(0)}%"></span></span>
        <span>${share(gpu.used, gpu.total, unit)}</span>
      </button>`,
      this.node
    );
  }

  /** Write the title on hover only: writing it each second costs as much as the rest of the item. */
  private describe = (event: Event): void => {
    const { trans, unit } = this;
    const { state } = this.store;
    const lines = (state ? labels(state) : []).map(name =>
      trans.__('GPU %1: %2', name, gpuText(state!.gpus[name]!, unit))
    );
    const all = [...lines, trans.__('Click for the notebooks that hold it')];
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
