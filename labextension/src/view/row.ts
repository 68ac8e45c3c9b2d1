// Draws one row: a notebook or process on one GPU, what it holds, its frameworks' figures, and the actions on it.

import { html, nothing, svg, type TemplateResult } from 'lit-html';
import { guard } from 'lit-html/directives/guard.js';
import { ago, clock, cut, figure, length, step, withUnit, type Translation, type Unit } from './format';
import { toneClass, type Actions, type Look } from './options';
import { own, type Entry } from './model';
import type { Row } from './wire';

/** Characters of a name that are shown, and that are in its title. */
const SHOWN = 200;
const SAID = 1000;

/** Pixels that a character of a name and of a state take, and that both have of the narrowest panel's first line. */
const [WIDE_NAME, WIDE_STATE, NARROW] = [7, 6, 136];

/** Draw a row, unless it is drawn already. */
export function rowView(entry: Entry, now: number, look: Look): unknown {
  const { row } = entry;
  const current = isCurrent(row, look);
  const tone = own(row) ? (row.tone ?? 0) : -1;
  // To write how long it is for hundreds of rows takes longer than all else, at each tick.
  const unused = step(now - (row.unused ?? now));
  const idle = row.state === 'idle' ? step(now - (row.active ?? now)) : 0;
  return guard([row, unused, idle, tone, current, look.version], () => draw(entry, { now, tone, current }, look));
}

/** Whether a row is of the user's current notebook. */
export function isCurrent(row: Row, look: Look): boolean {
  return row.path !== undefined && row.path === look.current;
}

/** For how long a row's process has not used its GPU: `unused 2 h`; nothing while it does, never did, or none knows. */
export function unusedText(row: Row, now: number, trans: Translation): string {
  const long = row.unused === undefined || neverUsed(row) ? '' : ago(now - row.unused, trans);
  return long && trans.__('unused %1', long);
}

/** Seconds that may lie between the end of a cell and the reading of its last use. */
const LATER = 60;

/**
 * Whether both are shown: what a process does, and for how long its GPU is unused. If the process is idle, both are shown
 * if the idle time is more than a minute longer than the unused time.
 */
export function beside({ state, active, unused }: Row): boolean {
  return state === 'busy' || (state === 'idle' && active !== undefined && (unused ?? active) > active + LATER);
}

/** What a row's process does: `busy`, `unused 2 h`, `idle 5 min`; that it has ended is in its name. */
export function stateText(row: Row, now: number, trans: Translation): string {
  if (row.who === 'gone') {
    return '';
  }
  const unused = beside(row) ? '' : unusedText(row, now, trans);
  if (unused) {
    return unused;
  }
  if (row.state === 'idle') {
    const since = row.active === undefined ? '' : ago(now - row.active, trans);
    return since ? trans.__('idle %1', since) : trans.__('idle');
  }
  if (row.state === 'starting') {
    return trans.__('starting');
  }
  if (row.state === 'unknown') {
    return ''; // of a kernel that no server here knows
  }
  return row.state === 'busy' ? trans.__('busy') : (row.state ?? '');
}

/** Whether a row's process waits for room. */
export function waits(row: Row): boolean {
  return row.waits !== undefined && row.room === undefined;
}

/** For how much it waits, and until when; or since when it has had room; nothing of what has not waited lately. */
export function waitTexts({ waits, room, until, needs, any_gpu }: Row, unit: Unit, trans: Translation): string[] {
  if (room !== undefined) {
    return [trans.__('has had room since %1', clock(room))];
  }
  if (waits === undefined) {
    return [];
  }
  const size = needs === undefined ? trans.__('room') : withUnit(needs, unit);
  const time = clock(until ?? waits).replace(/:\d\d$/, '');
  return [
    any_gpu ? trans.__('waits for %1 on any GPU', size) : trans.__('waits for %1', size),
    until === undefined ? trans.__('since %1', time) : trans.__('until %1', time)
  ];
}

/** What it holds; nothing of what holds nothing because it waits for room. */
export function heldText({ waits, held }: Row, unit: Unit): string {
  return waits !== undefined && !held ? '' : withUnit(held, unit);
}

interface Seen {
  now: number;
  tone: number;
  current: boolean;
}

function draw({ key, row }: Entry, seen: Seen, look: Look): TemplateResult {
  const { trans, unit, actions } = look;
  const unused = beside(row) ? unusedText(row, seen.now, trans) : '';
  const quiet = !own(row);
  const state = stateText(row, seen.now, trans);
  const long = WIDE_NAME * row.owner.length + WIDE_STATE * state.length > NARROW;
  const kinds = `${quiet ? ' tfgpu-view-quiet' : ''}${seen.current ? ' tfgpu-view-current' : ''}${long ? ' tfgpu-view-long' : ''}`;
  const about = title(row, trans);
  const name = html`<bdi>${cut(row.owner, SHOWN)}</bdi>`;
  return html`<li class="tfgpu-view-row${kinds}" data-key=${key} aria-current=${seen.current ? 'true' : nothing}>
    <span class="tfgpu-view-key ${quiet ? 'tfgpu-view-rest' : toneClass(seen.tone)}" aria-hidden="true"></span>
    <span class="tfgpu-view-who"
      >${
        actions.open && row.path !== undefined
          ? html`<button class="tfgpu-view-owner" type="button" data-do="open" title=${about}>${name}</button>`
          : html`<span class="tfgpu-view-owner" title=${about}>${name}</span>`
      } <span class="tfgpu-view-state" data-state=${row.state ?? ''}>${state}</span></span
    >
    ${buttons(row, actions, trans)}
    <span class="tfgpu-view-held">${heldText(row, unit)}</span>
    ${detail(row, unused, look)}
  </li>`;
}

function title(row: Row, trans: Translation): string {
  // A process that a notebook started has the notebook's path, and a name of its own, which a narrow row cuts.
  const named = row.path?.endsWith(row.owner) ? [] : [cut(row.owner, SAID)];
  const lines = [...named, ...(row.path === undefined ? [] : [cut(row.path, SAID)])];
  if (row.pid !== undefined && own(row)) {
    lines.push(trans.__('process %1', row.pid));
  }
  return lines.join('\n');
}

/**
 * Whether a row is of a process of the user's own that no server here knows, and that can be told from any later; not of
 * one that only draws, as a desktop does.
 */
export function canEnd(row: Row): boolean {
  const own = row.who === 'mine' && !row.child && !row.call && row.kind !== 'G';
  return own && row.pid !== undefined && row.began !== undefined;
}

const sign = (inside: TemplateResult): TemplateResult =>
  html`<svg class="tfgpu-view-icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">${inside}</svg>`;

/** Two sliders. */
const CHOOSE = sign(svg`<path d="M2 5h5.5m3.5 0h3M2 11h2.500m3.5 0h6M9.250 3v4M6.250 9v4" />`);

/** An arrow around. */
const RESTART = sign(svg`<path d="M12.6 6.2A5 5 0 1 0 13 8.6M13.2 2.8v3.6H9.6" />`);

/** A switch. */
const SHUT_DOWN = sign(svg`<path d="M8 2.2v5.4M4.7 4.2a5 5 0 1 0 6.6 0" />`);

/** A square. */
const STOP = sign(svg`<path d="M4.5 4.5h7v7h-7z" />`);

/**
 * The actions on a row: on a kernel, on an isolated call, or on a process that no server knows; there are none on a
 * kernel's other children.
 */
function buttons(row: Row, actions: Actions, trans: Translation): unknown {
  const name = cut(row.owner, SHOWN);
  const button = (what: keyof Actions, label: string, icon: TemplateResult): unknown =>
    actions[what]
      ? html`<button class="tfgpu-view-button" type="button" data-do=${what} title=${label} aria-label=${label}>
          ${icon}
        </button>`
      : nothing;
  if (!own(row) || (row.child && !row.call)) {
    return nothing;
  }
  let all: unknown[];
  if (row.kernel === undefined) {
    all = canEnd(row) ? [button('end', trans.__('End %1…', name), SHUT_DOWN)] : [];
  } else if (row.call) {
    all = [button('stop', trans.__('Stop %1…', name), STOP)];
  } else {
    all = [
      button('choose', trans.__('Set memory of %1…', name), CHOOSE),
      button('restart', trans.__('Restart the kernel of %1…', name), RESTART),
      button('shutDown', trans.__('Shut down the kernel of %1…', name), SHUT_DOWN)
    ];
    if (waits(row)) {
      all.unshift(button('stop', trans.__('End the wait of %1', name), STOP));
    }
  }
  return all.some(one => one !== nothing) ? html`<span class="tfgpu-view-buttons">${all}</span>` : nothing;
}

/** The second line: further facts; units stand above. */
function detail(row: Row, unused: string, { trans, unit }: Look): unknown {
  const all: Fact[] = [...(unused ? [['', unused] as const] : []), ...facts(row, unit, trans)];
  if (!all.length && !row.spare) {
    return nothing;
  }
  return html`<span class="tfgpu-view-detail"
    >${all.map(
      ([what, value]) =>
        html`<span class="tfgpu-view-fact"><span class="tfgpu-view-what">${what}</span> <span>${value}</span></span> `
    )}${
      row.spare
        ? html`<span
            class="tfgpu-view-back"
            title=${trans.__('It has long been idle, and uses little of this: a restart of its kernel gives it back')}
            >${trans.__('%1 could come back', withUnit(row.held, unit))}</span
          >`
        : nothing
    }</span
  >`;
}

/** A word and its figure; either may be empty. */
type Fact = readonly [what: string, value: string];

/** The framework that the policy is for: its figures stand beside the policy, without its name. */
const OWN = 'TensorFlow';

/** Return how a row's process waits and is parked, its frameworks' figures, its policy, and how much of the GPU it uses. */
export function facts(row: Row, unit: Unit, trans: Translation): Fact[] {
  const { [OWN]: its = {}, ...others } = row.figures ?? {};
  const policy: Fact[] = row.policy ? [['', cut(row.policy, SHOWN)]] : [];
  const states = [...waitTexts(row, unit, trans), parkedText([row], unit, trans)].filter(Boolean);
  const told = (name: string, figures: Record<string, number>): Fact[] =>
    row.parked?.size && allZero(Object.values(figures)) ? [] : said(name, figures, unit, trans);
  return [
    ...states.map(state => ['', state] as const),
    ...told('', its),
    ...policy,
    ...Object.entries(others).flatMap(([name, figures]) => told(`${name} `, figures)),
    ...(row.utilisation ? [[trans.__('use'), trans.__('%1%', row.utilisation)] as const] : [])
  ];
}

/**
 * How the rows of a process are parked: `parked: 12 GiB in host memory, 0.5 GiB stay`; or how long it took to bring them
 * back, `back in 3.2 s`; nothing of what was never parked.
 */
export function parkedText(rows: readonly Row[], unit: Unit, trans: Translation): string {
  const parked = sum(rows, row => row.parked?.size);
  if (parked === undefined) {
    const back = rows.find(row => row.parked)?.parked?.back;
    return back === undefined ? '' : trans.__('back in %1', length(back, trans));
  }
  const [size, stay] = [parked, sum(rows, row => row.held)].map(one => withUnit(one, unit).replace('.0 ', ' '));
  return rows.every(row => row.kind && row.held !== undefined) // by the driver, whose figure has the context, too
    ? trans.__('parked: %1 in host memory, %2 stay', size, stay)
    : trans.__('parked: %1 in host memory', size);
}

/** The sum of a figure in all rows that have one; undefined where none has. */
function sum(rows: readonly Row[], of: (row: Row) => number | undefined): number | undefined {
  const sizes = rows.map(of).filter(one => one !== undefined);
  return sizes.length ? sizes.reduce((all, one) => all + one, 0) : undefined;
}

/** Whether frameworks say that nothing was ever made on the GPU: the process has a context there, or a pool. */
function neverUsed({ figures = {}, parked }: Row): boolean {
  return !parked?.size && allZero(Object.values(figures).flatMap(its => Object.values(its)));
}

function allZero(sizes: readonly number[]): boolean {
  return sizes.length > 0 && sizes.every(size => size === 0);
}

/** A framework's figures; its name stands before the first. */
function said(name: string, figures: Record<string, number>, unit: Unit, trans: Translation): Fact[] {
  const all = Object.entries(figures);
  if (allZero(Object.values(figures))) {
    return [[name + trans.__('never used'), '']]; // as on the other GPUs of a TensorFlow without a policy
  }
  return all.map(([what, size], index) => [(index ? '' : name) + what, small(size, unit)]);
}

/** A figure in the unit that stands above; what is too small for that has one of its own. */
function small(size: number, unit: Unit): string {
  const text = figure(size, unit);
  return text.startsWith('<') ? withUnit(size, 'MiB') : text;
}
