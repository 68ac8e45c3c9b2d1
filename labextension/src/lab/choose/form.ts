// Draws the chooser: what is free on each GPU, the choices, the words for them, and what the kernel says to them.

import { html, nothing, type TemplateResult } from 'lit-html';
import { share, withUnit, type Translation, type Unit as Shown } from '../../view/format';
import type { Facts, Gpu, Outcome } from '../kernel';
import { ALL, bound, bytes, line, measure, most, PICK, STEP, type Choice, type Memory } from './choice';

/** All that a drawing needs. */
export interface Form {
  facts: Facts | null;
  choice: Choice;
  words: string;
  outcome: Outcome | null;
  /** Why the kernel cannot be asked now, or what it does; empty where it has answered. */
  notice: string;
  /** What a restart discards and gives back. */
  loss: string;
  /** What was just done, such as that a cell was inserted. */
  done: string;
}

export interface Hands {
  choose: (changed: Partial<Choice>) => void;
  convert: (unit: Choice['unit']) => void;
  take: (words: string) => void;
  again: () => void;
  copy: () => void;
  /** Absent where the notebook is not open in this page. */
  insert?: () => void;
}

export function form(state: Form, hands: Hands, unit: Shown, trans: Translation): TemplateResult {
  const { facts } = state;
  return html`${standing(state, hands, trans)}
  ${
    facts && readable(facts)
      ? html`${gpus(state, facts, hands, unit, trans)} ${memories(state, facts, hands, unit, trans)}
        ${wording(state, hands, trans)} ${answer(state, hands, trans)}`
      : nothing
  }`;
}

/** Whether anything is known of a GPU: nothing is when the driver has gone. */
export function readable({ gpus }: Facts): boolean {
  return gpus.some(gpu => gpu.free !== undefined || !gpu.error);
}

/** How the notebook stands: what is in force, or why nothing can be chosen. */
function standing({ facts, notice, loss }: Form, { again }: Hands, trans: Translation): unknown {
  const none = facts && !readable(facts);
  const error = facts?.gpus[0]?.error;
  if (notice || none) {
    return html`<p class="tfgpu-choose-notice" role="status">
        ${
          notice ||
          facts?.error ||
          (error
            ? trans.__('No GPU can be read now: %1.', error.slice(0, 100))
            : trans.__('The kernel sees no GPU, so there is nothing to choose.'))
        }
      </p>
      ${
        none
          ? html`<button type="button" class="tfgpu-choose-button" data-do="again" @click=${again}>
              ${trans.__('Ask Again')}
            </button>`
          : nothing
      }`;
  }
  if (!facts) {
    return nothing;
  }
  const now = facts.policy
    ? html`<p>${trans.__('In force:')} <code>${facts.policy}</code></p>`
    : html`<p>
        ${trans.__('No policy is set: the defaults of TensorFlow, PyTorch and JAX hold. TensorFlow takes nearly all that is free.')}
      </p>`;
  const held = facts.ceiling
    ? html`${now}
        <p>
          ${prose(trans.__('This machine lets each framework take no more than the ceiling: `%1`', facts.ceiling))}
        </p>`
    : now;
  return facts.late
    ? html`${held}
        <p class="tfgpu-choose-late">
          ${prose(facts.late)} <strong>${trans.__('Only a restart of the kernel can change it.')}</strong> ${loss}
        </p>`
    : held;
}

function gpus({ choice }: Form, facts: Facts, { choose }: Hands, unit: Shown, trans: Translation): TemplateResult {
  const option = (value: string, label: unknown, more: unknown = nothing): TemplateResult =>
    html`<label class="tfgpu-choose-option">
      <input
        type="radio"
        name="tfgpu-choose-gpu"
        .value=${value}
        .checked=${choice.gpu === value}
        @change=${() => choose({ gpu: value })}
      />
      <span class="tfgpu-choose-what">${label}</span>${more}
    </label>`;
  return html`<fieldset class="tfgpu-choose-group">
    <legend>
      ${facts.late ? trans.__('GPU, and what is free after a restart') : trans.__('GPU, and what is free')}
    </legend>
    ${facts.gpus.length > 1 ? option(ALL, trans.__('All of them')) : nothing}
    ${facts.gpus.length > 1 ? option(PICK, trans.__('The one with most free memory, chosen at the time')) : nothing}
    ${facts.gpus.map(gpu =>
      option(
        facts.gpus.length > 1 ? gpu.label : ALL,
        html`<strong>${gpu.label}</strong> <bdi>${gpu.name ?? ''}</bdi>`,
        html`${bar(gpu)}<span class="tfgpu-choose-figure">${free(gpu, unit, trans)}</span>`
      )
    )}
  </fieldset>`;
}

/** A GPU's memory: what is free of it is filled. */
function bar({ free, total }: Gpu): unknown {
  const part = free === undefined || !total ? 0 : Math.min(100, (100 * free) / total);
  return html`<span class="tfgpu-choose-bar" aria-hidden="true"><span style="width:${part.toFixed(0)}%"></span></span>`;
}

function free(gpu: Gpu, unit: Shown, trans: Translation): string {
  const size = trans.__('%1 free', share(gpu.free, gpu.total, unit));
  return gpu.free === undefined && gpu.error ? gpu.error.slice(0, 100) : size;
}

function memories(form: Form, facts: Facts, hands: Hands, unit: Shown, trans: Translation): TemplateResult {
  const names: [Memory, string][] = [
    ['growth', trans.__('As it is needed (growth)')],
    ['limit', trans.__('No more than a limit')],
    ['everything', trans.__("The frameworks' defaults: TensorFlow takes all that is free")]
  ];
  return html`<fieldset class="tfgpu-choose-group">
    <legend>${trans.__('Memory that each framework takes')}</legend>
    ${names.map(
      ([memory, name]) =>
        html`<label class="tfgpu-choose-option">
            <input
              type="radio"
              name="tfgpu-choose-memory"
              .value=${memory}
              .checked=${form.choice.memory === memory}
              @change=${() => hands.choose({ memory })}
            />
            <span class="tfgpu-choose-what">${name}</span>
          </label>
          ${memory === form.choice.memory ? more(form.choice, facts, hands, unit, trans) : nothing}`
    )}
  </fieldset>`;
}

/** What else can be chosen where this way of taking memory is. */
function more(choice: Choice, facts: Facts, hands: Hands, unit: Shown, trans: Translation): unknown {
  switch (choice.memory) {
    case 'growth':
      return html`<div class="tfgpu-choose-limit">
        ${ticked(trans.__('Give back what is not in use; no limit is possible then'), choice.release, release =>
          hands.choose({ release })
        )}
      </div>`;
    case 'limit':
      return limit(choice, facts, hands, unit, trans);
    default:
      return nothing;
  }
}

function ticked(label: string, checked: boolean, choose: (checked: boolean) => void): TemplateResult {
  return html`<label class="tfgpu-choose-grow">
    <input
      type="checkbox"
      .checked=${checked}
      @change=${(event: Event) => choose((event.target as HTMLInputElement).checked)}
    />
    ${label}
  </label>`;
}

function limit(choice: Choice, facts: Facts, hands: Hands, shown: Shown, trans: Translation): TemplateResult {
  const gpu = measure(facts.gpus, choice.gpu);
  const { amount, unit } = choice;
  const [size, percent] = gpu ? [bytes(choice, gpu), (100 * bytes(choice, gpu)) / gpu.total!] : [undefined, undefined];
  const both = percent === undefined ? `${amount} ${unit}` : `${withUnit(size, shown)} · ${Math.round(percent)}%`;
  const [least, top] = [STEP[unit], most(gpu, unit)];
  const highest = `${top}${unit === '%' ? '%' : ` ${unit}`}`;
  const end = {
    ceiling: trans.__('At most %1: limited by the ceiling `%2`', highest, facts.ceiling),
    fits: trans.__('At most %1 fits now', highest),
    none: ''
  }[bound(gpu, unit) ?? 'none'];
  const typed = (event: Event): void => {
    const input = event.target as HTMLInputElement;
    if (input.validity.valid) {
      hands.choose({ amount: input.valueAsNumber });
    }
  };
  return html`<div class="tfgpu-choose-limit">
    <input
      type="range"
      aria-label=${trans.__('Limit')}
      aria-valuetext=${both}
      min=${least}
      max=${top}
      step=${least}
      .value=${String(amount)}
      @input=${typed}
    />
    <input
      class="tfgpu-choose-number jp-mod-styled"
      type="number"
      required
      aria-label=${trans.__('Limit, as a number')}
      min=${least}
      max=${top}
      step=${least}
      .value=${String(amount)}
      @input=${typed}
    />
    <select
      class="tfgpu-choose-unit"
      aria-label=${trans.__('Unit of the limit')}
      .value=${unit}
      @change=${(event: Event) => hands.convert((event.target as HTMLSelectElement).value as Choice['unit'])}
    >
      <option value="GiB" ?selected=${unit === 'GiB'}>GiB</option>
      <option value="%" ?selected=${unit === '%'}>%</option>
    </select>
    <span class="tfgpu-choose-range">${trans.__('%1 to %2, in steps of %3', least, top, least)}</span>
    <span class="tfgpu-choose-both"
      >${gpu ? prose([trans.__('%1 of GPU %2', both, gpu.label), end].filter(Boolean).join('. ')) : ''}</span
    >
    ${ticked(trans.__('Take it as it is needed, and not at once'), choice.grow, grow => hands.choose({ grow }))}
  </div>`;
}

/** The words, to learn and to keep. */
function wording({ words, done }: Form, { copy, insert }: Hands, trans: Translation): TemplateResult {
  return html`<div class="tfgpu-choose-wording">
    <code class="tfgpu-choose-words">${line(words)}</code>
    <button type="button" class="tfgpu-choose-button" data-do="copy" @click=${copy}>${trans.__('Copy')}</button>
    ${
      insert
        ? html`<button
            type="button"
            class="tfgpu-choose-button"
            data-do="insert"
            title=${trans.__('So that it is in force whenever the notebook runs')}
            @click=${insert}
          >
            ${trans.__('Insert as First Cell')}
          </button>`
        : nothing
    }
    <span class="tfgpu-choose-done" role="status">${done}</span>
  </div>`;
}

/** What the kernel says to the words. */
function answer({ outcome }: Form, { take }: Hands, trans: Translation): TemplateResult {
  return html`<div class="tfgpu-choose-answer" role="status">${outcome ? said(outcome, take, trans) : nothing}</div>`;
}

function said(outcome: Outcome, take: Hands['take'], trans: Translation): unknown {
  switch (outcome.outcome) {
    case 'fits':
    case 'late':
    case 'applied': {
      const takes = outcome.takes.map(({ gpu, takes: what }) => trans.__('GPU %1: %2', gpu, what)).join('; ');
      const fits = outcome.notes.some(({ severity }) => severity === 'warning') ? '' : trans.__('It fits.');
      return html`${takes ? html`<p>${fits} ${takes}.</p>` : nothing}
      ${outcome.notes.map(({ text }) => html`<p class="tfgpu-choose-note">${prose(text)}</p>`)}`;
    }
    case 'refused':
    case 'wrong':
      return html`<p class="tfgpu-choose-refused">${prose(outcome.reason)}</p>
        ${
          outcome.ways.length
            ? html`<p>${trans.__('These fit:')}</p>
                <ul class="tfgpu-choose-ways">
                  ${outcome.ways.map(
                    way =>
                      html`<li>
                        <button
                          type="button"
                          class="tfgpu-offer"
                          data-do="take"
                          .textContent=${line(way)}
                          @click=${() => take(way)}
                        ></button>
                      </li>`
                  )}
                </ul>`
            : nothing
        }`;
    default:
      return nothing;
  }
}

/** A text whose parts between backticks are code, and whose lines are kept. */
export function prose(text: string): TemplateResult {
  const pieces = text.split('`').map((piece, index) => (index % 2 ? html`<code>${piece}</code>` : piece));
  return html`<span class="tfgpu-choose-prose">${pieces}</span>`;
}
