// The templates of the sentences that server and kernel send: made by scripts/_said.py from the package's own.

import type { Translation } from './format';

export const templates = (trans: Translation): string[] => [
  trans.__('%1 belongs to another user (%2, and you are %3).'),
  trans.__('%1 cannot be opened (%2). Remove it.'),
  trans.__('%1 cannot be removed (%2).'),
  trans.__('%1 cannot be used (%2).'),
  trans.__('%1 cannot be written to (%2).'),
  trans.__('%1 is a link, and it could lead to anybody.'),
  trans.__('%1 is not a directory.'),
  trans.__('%1 is not a plain file of your own. Remove it.'),
  trans.__('%1 is open to other users (mode %2; chmod 700 closes it).'),
  trans.__("%1's %2"),
  trans.__('%1, does not answer'),
  trans.__('%1, ended'),
  trans.__('%1, started from %2'),
  trans.__('Ask your administrator to remove it, or name another directory in TFGPU_MAGIC_DIR.'),
  trans.__(
    "Attribution is not available here: the driver does not name this machine's processes, as in some containers. Notebooks that have loaded tfgpu_magic show their own figures, and all else is shown as others."
  ),
  trans.__('NVML does not start: it answered with error %1. Check that nvidia-smi works.'),
  trans.__(
    'No NVIDIA driver was found: its library %1 could not be opened. Install the driver, or start the container with its GPUs (docker run --gpus all ...).'
  ),
  trans.__('Remove it, or name another directory in TFGPU_MAGIC_DIR.'),
  trans.__('The GPUs are being asked for the first time.'),
  trans.__('The GPUs sleep to save power, and nobody uses them. They are asked again when somebody does.'),
  trans.__('The NVIDIA driver answers, and lists no GPU. Check nvidia-smi, and that the container was given GPUs.'),
  trans.__(
    'The NVIDIA driver changed under the running system: its library and its kernel module are of different versions. Reload the module, or reboot.'
  ),
  trans.__(
    'The NVIDIA driver is not loaded: its library was opened, and no kernel module answered. Load it (modprobe nvidia) until nvidia-smi lists the GPUs.'
  ),
  trans.__('The NVIDIA driver refused: NVML was started without permission. Ask for access to /dev/nvidia*.'),
  trans.__(
    "The driver's list of processes is invalid on GPU %1: rows that cannot be are left out. Another version of the driver may give them right."
  ),
  trans.__('The server cannot show the GPUs: something is wrong in tfgpu_magic. Its log says what.'),
  trans.__('The table cannot be drawn: something is wrong in tfgpu_magic. `%tf_gpu status` may say what.'),
  trans.__('This driver counts the memory that it reserves for itself as used.'),
  trans.__("This machine's processes cannot be read at the moment."),
  trans.__("This machine's processes cannot be read."),
  trans.__('a kernel'),
  trans.__('a process that does not answer'),
  trans.__('a process that ended'),
  trans.__('another user'),
  trans.__('further processes'),
  trans.__('no collector could be started in %1 (%2).'),
  trans.__('no list of processes: %1'),
  trans.__('not told whose'),
  trans.__('others'),
  trans.__('the GPU is lost. Others go on'),
  trans.__('the GPU needs a reset. Others go on'),
  trans.__('the driver answers with error %1'),
  trans.__('the driver does not know what is wrong (unknown error)'),
  trans.__('the driver does not support it on this GPU'),
  trans.__('the driver gives no permission to read it'),
  trans.__('the driver tells nothing of it; its notebooks do'),
  trans.__("the driver's answer took too long"),
  trans.__('this notebook')
];
