// The panel's icon: a chip with its pins.

import { LabIcon } from '@jupyterlab/ui-components';

const CHIP = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <path fill-rule="evenodd" d="M5 4h14a1.5 1.5 0 0 1 1.5 1.5v13A1.5 1.5 0 0 1 19 20H5a1.5 1.5 0 0 1-1.5-1.5v-13A1.5 1.5 0 0 1 5 4Zm.5 2v12h13V6Z"/>
    <path d="M7.5 8.5h2v7h-2zM11 11h2v4.5h-2zM14.5 9.5h2v6h-2z"/>
    <path d="M6.5 1h1.6v2.5H6.5zM11.200 1h1.6v2.5h-1.6zM15.900 1h1.6v2.5h-1.6zM6.5 20.5h1.6V23H6.5zM11.200 20.5h1.6V23h-1.6zM15.900 20.5h1.6V23h-1.6z"/>
  </g>
</svg>`;

export const chipIcon = new LabIcon({ name: 'tfgpu-magic:chip', svgstr: CHIP });
