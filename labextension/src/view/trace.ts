// The lines of what was used of a GPU and how much it computed, with the values at a place, and the buttons beside them.

import { html, nothing, svg } from 'lit-html';
import { ref } from 'lit-html/directives/ref.js';
import { clock, UNKNOWN, withUnit, type Translation } from './format';
import { SPANS, type History, type Span } from './history';
import type { Look } from './options';
import type { Gpu } from './wire';

const WIDTH = 300;
const HEIGHT = 33;

/** How far an arrow key moves: ten seconds, or a minute of an hour. */
const STEP = 1 / 60;

/**
 * Draw a GPU's lines.
 *
 * @param key - the GPU's in its history.
 */
export function trace(key: string, gpu: Gpu, history: History, { trans, unit, span, use }: Look): unknown {
  const track = history.of(span);
  const line = track.path('used', key, gpu.total ?? 0, WIDTH, HEIGHT);
  const computed = use ? track.path('utilisation', key, 100, WIDTH, HEIGHT) : '';
  if (!line && !computed) {
    return nothing;
  }
  const used = (percent: number | null | undefined): string =>
    trans.__('use %1', percent === null || percent === undefined ? UNKNOWN : trans.__('%1%', percent));
  const said = long(span, trans);
  const most = withUnit(track.most('used', key), unit);
  const label = trans.__('Used in the last %1: %2 at most, of %3', said, most, withUnit(gpu.total, unit));
  const both = use ? trans.__('%1; %2 at most, dashed', label, used(track.most('utilisation', key))) : label;
  // The values at the place that was chosen are written as it moves, and as the lines move below it.
  const say = (box: HTMLElement): void => {
    const place = box.dataset['place'];
    const point = track.at(key, Number(place ?? 1));
    const size = point ? trans.__('%1 at %2', withUnit(point.used ?? undefined, unit), clock(point.time)) : UNKNOWN;
    const text = point && use ? `${size}\n${used(point.utilisation)}` : size;
    box.ariaValueNow = (100 * Number(place ?? 1)).toFixed(0);
    box.ariaValueText = text;
    show(box, place === undefined || !point ? null : Number(place), text);
  };
  const choose = (event: Event, place: number | undefined): void => {
    const box = event.currentTarget as HTMLElement;
    delete box.dataset['place'];
    if (place !== undefined) {
      box.dataset['place'] = String(Math.min(1, Math.max(0, place)));
    }
    say(box);
  };
  const placed = (event: Event): number => Number((event.currentTarget as HTMLElement).dataset['place'] ?? 1);
  const hover = (event: PointerEvent): void => {
    const { left, width } = (event.currentTarget as HTMLElement).getBoundingClientRect();
    choose(event, (event.clientX - left) / width);
  };
  const leave = (event: Event): void => {
    const focused = event.currentTarget === document.activeElement; // by a key or a touch, whose values stay until it ends
    choose(event, event.type === 'pointerleave' && focused ? placed(event) : undefined);
  };
  const press = (event: KeyboardEvent): void => {
    const place = { ArrowLeft: placed(event) - STEP, ArrowRight: placed(event) + STEP, Home: 0, End: 1 }[event.key];
    if (place !== undefined) {
      event.preventDefault();
      choose(event, place);
    }
  };
  return html`<div class="tfgpu-view-trace">
    <div
      class="tfgpu-view-past"
      role="slider"
      tabindex="0"
      aria-label=${both}
      aria-valuemin="0"
      aria-valuemax="100"
      data-lm-suppress-shortcuts="true"
      @pointermove=${hover}
      @pointerdown=${hover}
      @pointerleave=${leave}
      @focus=${(event: Event) => choose(event, placed(event))}
      @blur=${leave}
      @keydown=${press}
      ${ref(box => box instanceof HTMLElement && say(box))}
    >
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true">
        ${svg`<path d=${line} vector-effect="non-scaling-stroke" />
        <path class="tfgpu-view-computed" d=${computed} vector-effect="non-scaling-stroke" />`}
      </svg>
      <span class="tfgpu-view-cursor" hidden></span>
      <span class="tfgpu-view-at" hidden></span>
    </div>
    ${use ? html`<span class="tfgpu-view-scale" aria-hidden="true"><span>${trans.__('%1%', 100)}</span><span>0</span></span>` : nothing}
    <span class="tfgpu-view-lines">
      <button
        class="tfgpu-view-span"
        type="button"
        data-do="span"
        title=${trans.__('Show the last %1', long(next(span), trans))}
      >
        ${said}
      </button>
      <button
        class="tfgpu-view-span"
        type="button"
        data-do="use"
        aria-pressed=${use}
        title=${trans.__('Show how much the GPU computes: a dashed line, from 0 to 100%')}
      >
        ${trans.__('use')}
      </button>
    </span>
  </div>`;
}

/** The span that a click chooses. */
export function next(span: Span): Span {
  return SPANS[(SPANS.indexOf(span) + 1) % SPANS.length]!;
}

function long(span: Span, trans: Translation): string {
  return span < 3600 ? trans.__('%1 min', span / 60) : trans.__('%1 h', span / 3600);
}

/** Show a text above a place of the lines, and within their width; hide it where the place is null. */
function show(box: HTMLElement, place: number | null, text: string): void {
  const [cursor, words] = [...box.querySelectorAll<HTMLElement>('span')];
  if (!cursor || !words) {
    return;
  }
  cursor.hidden = words.hidden = place === null;
  words.textContent = text;
  cursor.style.left = words.style.left = `${100 * (place ?? 0)}%`;
  words.style.transform = `translateX(-${100 * (place ?? 0)}%)`;
}
