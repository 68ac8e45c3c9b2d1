// The line of what was used of a GPU, with the value at the pointer, and the button that chooses its span.

import { html, nothing, svg } from 'lit-html';
import { ref } from 'lit-html/directives/ref.js';
import { clock, UNKNOWN, withUnit, type Translation } from './format';
import { SPANS, type History, type Span } from './history';
import type { Look } from './options';
import type { Gpu } from './wire';

const WIDTH = 300;
const HEIGHT = 24;

/**
 * Draw a GPU's line.
 *
 * @param key - the GPU's in its history.
 */
export function trace(key: string, gpu: Gpu, history: History, { trans, unit, span }: Look): unknown {
  const line = history.path(key, gpu.total ?? 0, WIDTH, HEIGHT, span);
  if (!line) {
    return nothing;
  }
  const most = withUnit(history.most(key, span), unit);
  const said = long(span, trans);
  const label = trans.__('Used in the last %1: %2 at most, of %3', said, most, withUnit(gpu.total, unit));
  // What is at the pointer is written as the pointer moves, and as the line moves below it.
  const say = (box: HTMLElement): void => {
    const pointer = box.dataset['pointer'];
    const { left, width } = box.getBoundingClientRect();
    const place = pointer === undefined ? null : Math.min(1, Math.max(0, (Number(pointer) - left) / width));
    const point = place === null ? null : history.at(key, place, span);
    const value = point?.used === null ? UNKNOWN : withUnit(point?.used, unit);
    show(box, point && place, point ? trans.__('%1 at %2', value, clock(point.time)) : '');
  };
  const hover = (event: PointerEvent): void => {
    const box = event.currentTarget as HTMLElement;
    box.dataset['pointer'] = String(event.clientX);
    say(box);
  };
  const leave = (event: PointerEvent): void => {
    const box = event.currentTarget as HTMLElement;
    delete box.dataset['pointer'];
    say(box);
  };
  const drawn = (box?: Element): void => {
    if (box instanceof HTMLElement && box.dataset['pointer'] !== undefined) {
      say(box);
    }
  };
  return html`<div class="tfgpu-view-trace">
    <div class="tfgpu-view-past" @pointermove=${hover} @pointerdown=${hover} @pointerleave=${leave} ${ref(drawn)}>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${label}>
        ${svg`<path d=${line} vector-effect="non-scaling-stroke" />`}
      </svg>
      <span class="tfgpu-view-cursor" hidden></span>
      <span class="tfgpu-view-at" hidden></span>
    </div>
    <button
      class="tfgpu-view-span"
      type="button"
      data-do="span"
      title=${trans.__('Show the last %1', long(next(span), trans))}
    >
      ${said}
    </button>
  </div>`;
}

/** The span that a click chooses. */
export function next(span: Span): Span {
  return SPANS[(SPANS.indexOf(span) + 1) % SPANS.length]!;
}

function long(span: Span, trans: Translation): string {
  return span < 3600 ? trans.__('%1 min', span / 60) : trans.__('%1 h', span / 3600);
}

/** Show a text at a place of the line, on the side where there is more room; hide it where the place is null. */
function show(box: HTMLElement, place: number | null, text: string): void {
  const [cursor, words] = [...box.querySelectorAll<HTMLElement>('span')];
  if (!cursor || !words) {
    return;
  }
  cursor.hidden = words.hidden = place === null;
  words.textContent = text;
  if (place !== null) {
    const at = place * box.clientWidth;
    const width = words.offsetWidth;
    const beside = place < 0.5 ? at + GAP : at - GAP - width;
    cursor.style.left = `${at}px`;
    words.style.left = `${Math.max(0, Math.min(beside, box.clientWidth - width))}px`; // in a narrow panel, over the place
  }
}

/** Pixels between a place and its text. */
const GAP = 3;
