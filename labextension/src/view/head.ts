// The view's header, with the figures' age and order, and the sentences around the GPUs.

import { html, nothing, type TemplateResult } from 'lit-html';
import { clock, cut, type Translation } from './format';
import type { Look } from './options';
import { ORDERS, type Order } from './model';
import type { Link } from './store';
import type { State } from './wire';

/** The command that tries the view without a GPU. */
const TRY = 'python -m tfgpu_magic.simgpu --gpus 4x16GiB -- jupyter lab';

/** Characters of a server's sentence that are shown. */
const LONGEST = 1000;

export function head(state: State | null, link: Link, look: Look): TemplateResult {
  const { trans } = look;
  const fresh = freshness(state, link, trans);
  return html`<div class="tfgpu-view-head">
    <span class="tfgpu-view-heading" role="heading" aria-level="2">${trans.__('GPU memory')}</span>
    <span class="tfgpu-view-link" data-kind=${fresh.kind} role="status"
      >${fresh.text}${fresh.every ? html`<span class="tfgpu-view-every"> · ${fresh.every}</span>` : nothing}</span
    >
    ${
      state?.simulated
        ? html`<span
            class="tfgpu-view-tag"
            title=${trans.__('Memory is counted as on real GPUs; what they compute means nothing')}
            >${trans.__('simulated')}</span
          >`
        : nothing
    }
    ${
      look.refresh
        ? html`<button class="tfgpu-view-text-button" type="button" data-do="refresh">${trans.__('Refresh')}</button>`
        : nothing
    }
    ${state && Object.keys(state.rows).length ? orders(look) : nothing}
  </div>`;
}

function orders({ trans, order }: Look): TemplateResult {
  const names: Record<Order, string> = {
    held: trans.__('by memory'),
    name: trans.__('by name'),
    activity: trans.__('by activity')
  };
  return html`<select class="tfgpu-view-order" aria-label=${trans.__('Order of the rows')} .value=${order}>
    ${ORDERS.map(name => html`<option value=${name} ?selected=${name === order}>${names[name]}</option>`)}
  </select>`;
}

/** Whether figures are old, so that they are drawn faded. */
export function old(state: State | null, link: Link): boolean {
  return state?.stale !== undefined || (state !== null && link.kind !== 'live');
}

function freshness(
  state: State | null,
  link: Link,
  trans: Translation
): { kind: string; text: string; every?: string } {
  if (link.kind === 'connecting') {
    return { kind: 'lost', text: trans.__('connecting…') };
  }
  if (link.kind === 'lost') {
    const text = state?.time ? trans.__('reconnecting… as of %1', clock(state.time)) : trans.__('reconnecting…');
    return { kind: 'lost', text };
  }
  if (state?.stale !== undefined) {
    return { kind: 'stale', text: trans.__('stale since %1', clock(state.stale)) };
  }
  if (link.kind === 'live' && !state?.error) {
    const every = Math.max(link.every ?? 0, state?.every ?? 0);
    return { kind: 'live', text: trans.__('live'), every: every ? trans.__('%1 s', every) : '' };
  }
  return { kind: 'saved', text: state?.time && link.kind !== 'live' ? trans.__('as of %1', clock(state.time)) : '' };
}

/** The text in place of figures, or why no new ones come. */
export function notices(state: State | null, link: Link, trans: Translation): unknown {
  if (link.kind === 'refused') {
    return html`<p class="tfgpu-view-notice" role="alert">${prose(link.reason)}</p>`;
  }
  if (state?.error) {
    return html`<p class="tfgpu-view-notice">${prose(state.error)}</p>
      ${state.absent ? hint(trans) : nothing}`;
  }
  if (!state) {
    return nothing;
  }
  const silent = Object.values(state.gpus).some(gpu => gpu.error);
  return Object.keys(state.rows).length || silent
    ? nothing
    : html`<p class="tfgpu-view-nobody">${trans.__('No process holds GPU memory')}</p>`;
}

function hint(trans: Translation): TemplateResult {
  return html`<p class="tfgpu-view-notice">${trans.__('To try it without a GPU, on a simulated machine:')}</p>
    <pre class="tfgpu-view-try" tabindex="0">${TRY}</pre>
    <p class="tfgpu-view-notice">${trans.__('More about it: "A machine of simulated GPUs" in the documentation.')}</p>`;
}

/** The notes below. */
export function notes(state: State | null, { trans, show }: Look): unknown {
  const lines = state?.notes ?? [];
  return lines.length && show.notes
    ? html`<ul class="tfgpu-view-notes" aria-label=${trans.__('Notes')}>
        ${lines.map(({ text, severity }) => html`<li class="tfgpu-view-${severity}">${prose(text)}</li>`)}
      </ul>`
    : nothing;
}

/** A sentence whose parts between backticks are code. */
function prose(text: string): unknown {
  return cut(text, LONGEST)
    .split('`')
    .map((piece, index) => (index % 2 ? html`<code>${piece}</code>` : piece));
}
