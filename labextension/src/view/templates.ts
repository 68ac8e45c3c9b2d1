// The templates of the sentences that server and kernel send: made by scripts/_said.py from the package's own.

import type { Translation } from './format';

export const templates = (trans: Translation): string[] => [
  trans.__("%1's %2"),
  trans.__('%1, does not answer'),
  trans.__('%1, ended'),
  trans.__('%1, started from %2'),
  trans.__(
    "Attribution is not available here: the driver does not name this machine's processes, as in some containers. Notebooks that have loaded tfgpu_magic show their own figures, and all else is shown as others."
  ),
  trans.__('a kernel'),
  trans.__('a process that does not answer'),
  trans.__('a process that ended'),
  trans.__('another user'),
  trans.__('further processes'),
  trans.__('not told whose'),
  trans.__('others'),
  trans.__('the driver tells nothing of it; its notebooks do'),
  trans.__('this notebook')
];
