// The templates of the sentences that server and kernel send: made by scripts/_said.py from the package's own.

import type { Translation } from './format';

export const templates = (trans: Translation): string[] => [
  trans.__('%1'),
  trans.__('%1 %2'),
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
  trans.__('A cell runs there: it is parked between cells only.'),
  trans.__('A cell waits for it, or what a page has asked: interrupt its kernel.'),
  trans.__(
    'A process that holds so much of GPU %1 could not surely come back: that needs %2 (free without your processes: %3). With less memory (`%tf_gpu limit`, `growth`) it can be parked.'
  ),
  trans.__('A profiler has run in it, which drivers do not park with certainty. Restart, and do not profile.'),
  trans.__(
    'A tf.data pipeline there prefetches to the GPU, and may use it at any time. Delete its iterator first (`del` and its name).'
  ),
  trans.__('Ask your administrator to remove it, or name another directory in TFGPU_MAGIC_DIR.'),
  trans.__(
    "Attribution is not available here: the driver does not name this machine's processes, as in some containers. Notebooks that have loaded tfgpu_magic show their own figures, and all else is shown as others."
  ),
  trans.__("By today's figures it comes back only when %1 more of GPU %2 are free."),
  trans.__('GPU %1 is divided by MIG, which the driver cannot park.'),
  trans.__("GPU %1 shares the machine's memory, so nothing would be gained."),
  trans.__('Host memory must take %1; what parking may fill of it: %2 (`tfgpu doctor` says why).'),
  trans.__('It goes on without its GPU memory, which is parked: `%tf_gpu unpark` tries to bring that back.'),
  trans.__('It has child processes that use the GPU or may (%1), which would stay there: end them first.'),
  trans.__(
    "It has the driver's calls from elsewhere than the driver's own library (%1), and nobody has seen such a process parked."
  ),
  trans.__('It holds no GPU memory, so there is nothing to park.'),
  trans.__('It is not known which kernel module of the driver is loaded.'),
  trans.__('It is on its way back to the GPU: say it again when it is there.'),
  trans.__(
    'It is on several GPUs, from which processes often do not come back. Restart, and let it see one: `%tf_gpu visible 0`.'
  ),
  trans.__(
    'It shares GPU memory with another process, which drivers before 610 do not survive, and newer ones are not trusted with.'
  ),
  trans.__("It uses CUDA's managed memory, or may use it, which the driver cannot park."),
  trans.__("It uses the GPU through NVIDIA's MPS, or may, and nobody has seen such a process parked."),
  trans.__('It was called off.'),
  trans.__(
    'Its GPU state cannot be had back: the driver found too little room on the way. Run cells again to save what is in host memory, then restart it, which frees what it still holds.'
  ),
  trans.__('NCCL has started in it, as several GPUs under one strategy need it; drivers park it badly or not.'),
  trans.__('NVML does not start: it answered with error %1. Check that nvidia-smi works.'),
  trans.__(
    'No NVIDIA driver was found: its library %1 could not be opened. Install the driver, or start the container with its GPUs (docker run --gpus all ...).'
  ),
  trans.__(
    'No disk is there for it: an administrator names a directory and how much each user may fill, as in c.TfGpuMagics.parking_disk = "500GiB in /scratch".'
  ),
  trans.__('Nobody inside it says that it is idle: park it from its own notebook.'),
  trans.__('Nothing can be written to %1: %2.'),
  trans.__('On disk it needs %1; what parking may fill in %2: %3.'),
  trans.__(
    'Parking is off: its way back was tried on a simulated driver only, so nobody knows what a real one makes of the work. `%config TfGpuMagics.parking = "ask"` in its notebook turns it on.'
  ),
  trans.__('Remove it, or name another directory in TFGPU_MAGIC_DIR.'),
  trans.__('Something else has locked it, or has moved its state away; whoever did has to bring it back.'),
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
    'The compute mode of GPU %1 is not the default, so that what takes the room for a return would keep the process off it. An administrator can change it: `nvidia-smi -c DEFAULT`.'
  ),
  trans.__('The driver does not say what it holds of GPU %1.'),
  trans.__('The driver does not say what it holds of any GPU.'),
  trans.__('The driver gives no figures: %1'),
  trans.__('The driver has declined it (%1: %2).'),
  trans.__('The driver has not answered (%1). What becomes of it is found out, and it is set right.'),
  trans.__('The driver parks nothing on %1 processors.'),
  trans.__(
    "The driver's list of processes is invalid on GPU %1: rows that cannot be are left out. Another version of the driver may give them right."
  ),
  trans.__("The driver's version is %1, and parking needs %2 or newer."),
  trans.__("The driver's version is %1, and to disk it parks from %2 on."),
  trans.__('The file on disk cannot be written or read (%1). Nothing is lost, and it is as it was before.'),
  trans.__('The kernel with pid %1 cannot be asked: %2'),
  trans.__(
    'The open kernel module (%1) is loaded, under which the end of a process that was parked once has stopped whole machines. A configuration file can allow it all the same, and no `%config` can: c.TfGpuMagics.parking_on_open_module = True.'
  ),
  trans.__('The server cannot show the GPUs: something is wrong in tfgpu_magic. Its log says what.'),
  trans.__('The table cannot be drawn: something is wrong in tfgpu_magic. `%tf_gpu status` may say what.'),
  trans.__('There is no such process any more.'),
  trans.__("There is room by the driver's figures, but it does not give it (%1: %2)."),
  trans.__('These threads, tasks or callbacks may use the GPU while it is parked: %1. Stop them first.'),
  trans.__(
    'This driver (%1) ends a process in which NVML was loaded and unloaded badly, and here that cannot be ruled out. Restart, and turn parking on before anything uses the GPU.'
  ),
  trans.__('This driver counts the memory that it reserves for itself as used.'),
  trans.__("This machine's processes cannot be read at the moment."),
  trans.__("This machine's processes cannot be read."),
  trans.__('What it has given the GPU to do did not end within %1 s. It goes on as before; say it again.'),
  trans.__('What it has given the GPU to do has ended in an error: %1'),
  trans.__(
    'Your parked processes may fill %1 of host memory together, an administrator says, and %2 are filled: bring one back first.'
  ),
  trans.__('Your processes together hold %1 of GPU %2. %3 allows %4.'),
  trans.__('a kernel'),
  trans.__('a process in a container of yours'),
  trans.__('a process that does not answer'),
  trans.__('a process that ended'),
  trans.__('allocated'),
  trans.__('another user'),
  trans.__('further processes'),
  trans.__('in use'),
  trans.__('limit'),
  trans.__('no collector could be started in %1 (%2).'),
  trans.__('no list of processes: %1'),
  trans.__('none'),
  trans.__('not told whose'),
  trans.__('others'),
  trans.__('peak'),
  trans.__('peaks'),
  trans.__('pool'),
  trans.__('process %1 cannot be read: it hangs in the driver, as it seems'),
  trans.__('process %1 is no isolated call of a kernel of this server'),
  trans.__('process %1 is no kernel of this server'),
  trans.__('process %1 is not ended'),
  trans.__('reserved'),
  trans.__('the GPU is lost. Others go on'),
  trans.__('the GPU needs a reset. Others go on'),
  trans.__('the driver answers with error %1'),
  trans.__('the driver does not know what is wrong (unknown error)'),
  trans.__('the driver does not support it on this GPU'),
  trans.__('the driver gives no permission to read it'),
  trans.__('the driver tells nothing of it; its notebooks do'),
  trans.__("the driver's answer took too long"),
  trans.__('the notebook with pid %1 has nothing to put off'),
  trans.__('this notebook'),
  trans.__('unknown')
];
