// One GPU: its header, its bar by notebook, its history and its rows.

import { html, nothing, type TemplateResult } from 'lit-html';
import { guard } from 'lit-html/directives/guard.js';
import { repeat } from 'lit-html/directives/repeat.js';
import { cut, share, short, UNKNOWN, withUnit, type Translation, type Unit } from './format';
import type { History } from './history';
import { toneClass, type Look } from './options';
import { nearlyFull, own, type Entry } from './model';
import { isCurrent, rowView } from './row';
import { trace } from './trace';
import type { Gpu, Row } from './wire';

/** Names in a bar's description; a screen reader would take too long for more. */
const NAMED = 8;

/** Percent of a bar below which a part has no label: its margins alone would not fit. */
const LEGIBLE = 2;

/** Rows of a GPU that are shown at first: hundreds are not readable, and slow to draw each second. */
const FOLD = 32;

export interface GpuData {
  label: string;
  gpu: Gpu;
  entries: readonly Entry[];
  history: History;
  now: number;
  /** Its position among all GPUs, from 0 to 1. */
  part: number;
}

export function gpuView(data: GpuData, look: Look): TemplateResult {
  const { label, gpu, entries, history, now, part } = data;
  const all = look.show.others ? entries : entries.filter(({ row }) => own(row));
  const shown = look.unfolded.has(label) ? all : folded(all, look);
  const kind = gpu.instance === undefined ? '' : ' tfgpu-view-instance';
  return html`<div class="tfgpu-view-gpu${kind}" role="group" aria-label=${look.trans.__('GPU %1', label)}>
    <div class="tfgpu-view-machine">
      ${guard([gpu, look.version], () => header(label, gpu, look))} ${bar(gpu, entries, look)}
      ${
        look.show.history
          ? guard([history.of(look.span).edition(part), gpu.total, look.version], () =>
              trace(gpu.uuid ?? label, gpu, history, look)
            )
          : nothing
      }
    </div>
    ${
      shown.length
        ? html`<ul class="tfgpu-view-rows">
            ${repeat(
              shown,
              entry => entry.key,
              entry => rowView(entry, now, look)
            )}
            ${shown.length < all.length ? more(label, all, shown.length, look) : nothing}
          </ul>`
        : nothing
    }
  </div>`;
}

/** The first rows, and those of the user's current notebook. */
function folded(entries: readonly Entry[], look: Look): readonly Entry[] {
  return entries.length <= FOLD + 1
    ? entries
    : entries.filter(({ row }, index) => index < FOLD || row.who === 'this' || isCurrent(row, look));
}

/** The line for the rows that are not shown. */
function more(label: string, all: readonly Entry[], shown: number, { trans, unit }: Look): TemplateResult {
  const count = all.length - shown;
  return html`<li class="tfgpu-view-more">
    <button class="tfgpu-view-text-button" type="button" data-do="unfold" data-label=${label}>
      ${trans._n('Show %1 more', 'Show %1 more', count)}
    </button>
    <span>${trans.__('%1 in all', withUnit(sum(all), unit))}</span>
  </li>`;
}

function sum(entries: readonly Entry[]): number {
  return entries.reduce((total, { row }) => total + (row.held ?? 0), 0);
}

/** What is shown of each sensor, by its name and in its order. */
const SENSORS: Record<string, (value: number, trans: Translation) => string> = {
  utilisation: (value, trans) => trans.__('use %1', trans.__('%1%', value)),
  temperature: (value, trans) => trans.__('%1 °C', value),
  power: (value, trans) => trans.__('%1 W', value)
};

/** What a GPU's sensors tell: how much it is used and what else there is. */
export function sensors({ sensors: told = {}, mig, error }: Gpu, trans: Translation): string {
  const known = Object.entries(SENSORS).flatMap(([name, said]) => (name in told ? [said(told[name]!, trans)] : []));
  const unknown = told.utilisation !== undefined || mig || error ? [] : [trans.__('use %1', UNKNOWN)]; // else it is said
  return [...unknown, ...known].join(' · ');
}

function header(label: string, gpu: Gpu, look: Look): TemplateResult {
  const { trans, unit } = look;
  const kernel = [gpu.logical, gpu.policy].filter(Boolean).join(' · ');
  const said = [cut(kernel, 200), look.show.sensors ? sensors(gpu, trans) : ''].filter(Boolean).join(' · ');
  const unknown = gpu.used === undefined && gpu.total === undefined;
  const full = nearlyFull(gpu);
  const trouble = gpu.error ? cut(gpu.error, 300) : '';
  const tag = (text: string, hint: string): TemplateResult =>
    html`<span class="tfgpu-view-tag" title=${hint}>${text}</span>`;
  return html`<div class="tfgpu-view-title" role="heading" aria-level="3">
      <span class="tfgpu-view-number">${label}</span>
      <span class="tfgpu-view-name" title=${cut(gpu.name ?? '', 1000)}><bdi>${cut(gpu.name ?? '', 200)}</bdi></span>
      ${gpu.mig ? tag(trans.__('MIG'), trans.__('Cut into instances, which have lines of their own')) : nothing}
      ${gpu.limit ? tag(trans.__('limit %1', withUnit(gpu.limit, unit).replace('.0 ', ' ')), trans.__('Of this GPU, the driver lets your processes here have so much together')) : nothing}
      ${gpu.unified ? tag(trans.__('unified'), trans.__('It shares its memory with the processor')) : nothing}
      ${full === undefined ? nothing : html`<span class="tfgpu-view-full" title=${trans.__('Nearly full: %1 free', withUnit(gpu.free, unit))}>${trans.__('%1%', full)}</span>`}
      <span class="tfgpu-view-figure">${figures(gpu, unit)}</span>
    </div>
    ${said ? html`<div class="tfgpu-view-sensors" title=${kernel || nothing}>${said}</div>` : nothing}
    ${
      trouble
        ? html`<div class="tfgpu-view-trouble">${unknown ? trans.__('N/A: %1', trouble) : trouble}</div>`
        : nothing
    }`;
}

function figures(gpu: Gpu, unit: Unit): string {
  if (gpu.used === undefined && gpu.mig) {
    return gpu.total === undefined ? '' : withUnit(gpu.total, unit).replace('.0 ', ' ');
  }
  const unknown = gpu.used === undefined && gpu.total === undefined;
  return unknown ? (gpu.error ? '' : UNKNOWN) : share(gpu.used, gpu.total, unit);
}

/** A part of a bar. */
export interface Part {
  key: string;
  what: 'own' | 'small' | 'others' | 'free';
  /** The row, if the part is a notebook's own. */
  row?: Row;
  size: number;
  /** How many rows it stands for. */
  count: number;
}

/** The part of a bar that is too narrow to be distinguished: three pixels of the panel. */
const NARROW = 0.012;

/** The parts of a GPU's bar. They may add up to less than the total, which includes the driver's reserve. */
export function parts(gpu: Gpu, entries: readonly Entry[]): { parts: Part[]; whole: number } {
  const mine: Part[] = [];
  const small: Part = { key: 'small', what: 'small', size: 0, count: 0 };
  const least = NARROW * (gpu.total ?? 0);
  for (const { key, row } of entries) {
    const size = row.held ?? 0;
    if (!size || !own(row)) {
      continue;
    }
    if (size < least) {
      small.size += size;
      small.count += 1;
    } else {
      mine.push({ key, what: 'own', row, size, count: 1 });
    }
  }
  const others: Part = { key: 'others', what: 'others', size: gpu.others?.size ?? 0, count: 0 };
  const free: Part = { key: 'free', what: 'free', size: gpu.free ?? 0, count: 0 };
  const shown = [...mine, small, others, free].filter(part => part.size > 0);
  const sum = shown.reduce((size, part) => size + part.size, 0);
  return { parts: shown, whole: Math.max(gpu.total ?? 0, sum) };
}

function bar(gpu: Gpu, entries: readonly Entry[], look: Look): unknown {
  const { parts: all, whole } = parts(gpu, entries);
  if (!gpu.total || !whole || gpu.used === undefined || gpu.mig) {
    return nothing;
  }
  const said = [...all.slice(0, NAMED), ...(all.length > NAMED ? all.slice(NAMED).filter(edge) : [])]
    .map(part => `${partName(part, gpu, look)} ${withUnit(part.size, look.unit)}`)
    .join(', ');
  return html`<div class="tfgpu-view-bar" role="img" aria-label=${said}>
    ${repeat(
      all,
      part => part.key,
      part => segment(part, gpu, (100 * part.size) / whole, look)
    )}
  </div>`;
}

/** Whether a part is described, however many there are. */
function edge(part: Part): boolean {
  return part.what === 'others' || part.what === 'free';
}

function partName({ what, row, count }: Part, gpu: Gpu, { trans }: Look): string {
  switch (what) {
    case 'own':
      return cut(row?.owner ?? '', 60);
    case 'small':
      return trans._n('%1 smaller one of yours', '%1 smaller ones of yours', count);
    case 'others':
      return gpu.others?.text.replace(/^others$/, () => trans.__('others')) ?? '';
    case 'free':
      return trans.__('free');
  }
}

/** Its width is in whole thousandths, so that figures that hardly change draw nothing again. */
function segment(part: Part, gpu: Gpu, percent: number, look: Look): TemplateResult {
  const kind =
    part.what === 'own' && part.row
      ? `${toneClass(part.row.tone ?? 0)}${isCurrent(part.row, look) ? ' tfgpu-view-here' : ''}`
      : part.what === 'free'
        ? 'tfgpu-view-free'
        : part.what === 'small'
          ? 'tfgpu-view-small'
          : 'tfgpu-view-rest';
  const name =
    percent < LEGIBLE
      ? ''
      : part.what === 'own' && part.row
        ? short(cut(part.row.owner, 60))
        : part.what === 'others'
          ? partName(part, gpu, look)
          : '';
  // It changes each second, and is rarely read: it is written on hover.
  const say = (event: Event): void => {
    const title = look.trans.__('%1: %2', partName(part, gpu, look), share(part.size, gpu.total, look.unit));
    (event.currentTarget as HTMLElement).title = title;
  };
  return html`<span class="tfgpu-view-part ${kind}" style="width:${percent.toFixed(2)}%" @pointerenter=${say}
    >${name ? html`<span class="tfgpu-view-label"><bdi>${name}</bdi></span>` : nothing}</span
  >`;
}
