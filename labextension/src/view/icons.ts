// The view's icons, drawn by hand in 16 × 16.

import { html, svg, type TemplateResult } from 'lit-html';

const sign = (inside: TemplateResult): TemplateResult =>
  html`<svg class="tfgpu-view-icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">${inside}</svg>`;

/** An arrow around. */
export const RESTART = sign(svg`<path d="M12.6 6.2A5 5 0 1 0 13 8.6M13.2 2.8v3.6H9.6" />`);

/** A switch. */
export const SHUT_DOWN = sign(svg`<path d="M8 2.2v5.4M4.7 4.2a5 5 0 1 0 6.6 0" />`);

/** An arrow down into a tray. */
export const PARK = sign(svg`<path d="M8 2.4v6.8M5.2 6.6 8 9.4l2.8-2.8M2.8 10v3.2h10.4V10" />`);

/** An arrow up out of a tray. */
export const UNPARK = sign(svg`<path d="M8 9.4V2.6M5.2 5.2 8 2.4l2.8 2.8M2.8 10v3.2h10.4V10" />`);

/** A square. */
export const STOP = sign(svg`<path d="M4.5 4.5h7v7h-7z" />`);
