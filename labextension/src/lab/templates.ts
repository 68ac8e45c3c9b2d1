// The templates of the sentences that server and kernel send: made by scripts/_said.py from the package's own.

import type { Translation } from '../view/format';

export const templates = (trans: Translation): string[] => [
  trans.__('  %1'),
  trans.__('  GPU %1: %2'),
  trans.__('%1'),
  trans.__('%1\n%2'),
  trans.__('%1  %2'),
  trans.__('%1 %2'),
  trans.__('%1 (%2)'),
  trans.__('%1 (error %2)'),
  trans.__('%1 (older than 2.16, the oldest that tfgpu_magic was tested with)'),
  trans.__('%1 GPUs'),
  trans.__('%1 `%2`'),
  trans.__("%1 already uses a GPU in this %2; what it takes comes on top of TensorFlow's limits."),
  trans.__('%1 and %2'),
  trans.__('%1 are imported here too, and left free:'),
  trans.__('%1 belongs to another user (%2, and you are %3).'),
  trans.__('%1 can'),
  trans.__('%1 cannot be had in full.'),
  trans.__('%1 cannot be had now; %2.'),
  trans.__('%1 cannot be opened (%2). Remove it.'),
  trans.__('%1 cannot be removed (%2).'),
  trans.__('%1 cannot be used (%2).'),
  trans.__('%1 cannot be written to (%2).'),
  trans.__(
    '%1 did not answer within %2 s. A driver that nothing keeps awake takes some seconds to start, and it is still being asked: say it again. %3 shows whether it hangs.'
  ),
  trans.__('%1 did not answer within %2 s: the driver hangs, or takes longer to start. Try %3.'),
  trans.__('%1 did not take it: %2'),
  trans.__('%1 does not answer: an earlier call hangs in the driver. A reboot may be needed.'),
  trans.__('%1 does nothing: only true and false count.'),
  trans.__('%1 failed to start for lack of memory on a GPU; restart this %2.'),
  trans.__('%1 free'),
  trans.__('%1 gave no answer: the process that asked it ended without one (%2).'),
  trans.__('%1 gets no GPU.'),
  trans.__('%1 has no effect: it was set after the list of GPUs was made. Write `%tf_gpu visible` instead%2.'),
  trans.__('%1 has one limit for all GPUs, a part of each: it takes no more than %2.'),
  trans.__('%1 has only the CPU here, and takes nothing of a GPU.'),
  trans.__('%1 hides every GPU.'),
  trans.__('%1 is %2'),
  trans.__('%1 is %2 now: restart, and take out the line that sets it, or run it before `%tf_gpu`.'),
  trans.__('%1 is NOT held: %2'),
  trans.__('%1 is NOT in force: %2. To have it, %3, and %4.'),
  trans.__('%1 is a link, and it could lead to anybody.'),
  trans.__('%1 is already using a GPU in this %2%3, so its memory cannot be changed any more.'),
  trans.__('%1 is imported and has not used a GPU yet.'),
  trans.__('%1 is imported here too, and left free:'),
  trans.__('%1 is imported, and something holds a CUDA context; nothing can be set until a restart.'),
  trans.__('%1 is in force already. Leave this call out.'),
  trans.__('%1 is in force, so set_memory_growth changes nothing: %2.'),
  trans.__(
    '%1 is in force: GPU %2 is hidden, and GPU %3 is numbered from 0. Take a lower number; to have all GPUs, restart and begin with `%tf_gpu visible all`.'
  ),
  trans.__('%1 is not a directory.'),
  trans.__('%1 is not a plain file of your own. Remove it.'),
  trans.__('%1 is not held to all of `%2`.'),
  trans.__('%1 is open to other users (mode %2; chmod 700 closes it).'),
  trans.__('%1 is set, and caps what TensorFlow takes of each GPU at %2.'),
  trans.__('%1 is set, and does nothing with --release.'),
  trans.__("%1 is set, and that allocator keeps to no limit. Unset it before TensorFlow's first op:   %env %2="),
  trans.__('%1 is set, with which JAX heeds no limit.'),
  trans.__('%1 is set, with which PyTorch heeds no limit.'),
  trans.__("%1 is set: memory grows as CUDA's own pool does."),
  trans.__('%1 is too little to work with; %2 is the least.'),
  trans.__('%1 is using %2.'),
  trans.__('%1 may be any of %2 GPUs; write more of its UUID.'),
  trans.__("%1 may begin the UUID of any GPU. For nvidia-smi's GPU %2, write %2."),
  trans.__('%1 may take %2 of GPU %3'),
  trans.__('%1 more'),
  trans.__(
    "%1 of %2 are free, and TensorFlow needs about %3 for CUDA's context on every GPU that it sees. Its first op would fail there, and the next may hang for good."
  ),
  trans.__('%1 of GPU %2'),
  trans.__('%1 of the %2 that are free'),
  trans.__('%1 takes %2.'),
  trans.__('%1 to %2'),
  trans.__('%1 used the GPUs when this process was forked, and cannot use them in it.'),
  trans.__('%1 was %2; in this process it is %3 now, as you asked.'),
  trans.__('%1 was not asked: no process could be started (%2).'),
  trans.__(
    '%1 was not set by %tf_gpu, and CUDA did not say in time which GPUs that leaves, so none of them can be picked. Say it again, or name GPUs: `%tf_gpu visible 0`.'
  ),
  trans.__('%1 was not set by %tf_gpu, and leaves no other GPUs.'),
  trans.__('%1 was not set by %tf_gpu.'),
  trans.__("%1 with %2 free, and room for CUDA's context,"),
  trans.__("%1's %2"),
  trans.__('%1, %2'),
  trans.__('%1, %2 here'),
  trans.__('%1, %2 of %3'),
  trans.__("%1, and CUDA's context takes about %2 more; %3 of %4 are free."),
  trans.__('%1, and is not in force: %2.'),
  trans.__('%1, and the ceiling is %2.'),
  trans.__('%1, does not answer'),
  trans.__('%1, ended'),
  trans.__('%1, grows'),
  trans.__('%1, more than %2. TensorFlow would take less, and not say so.'),
  trans.__("%1, more than a limit of %2 and CUDA's libraries"),
  trans.__('%1, not in force'),
  trans.__('%1, started from %2'),
  trans.__('%1. TensorFlow would fail on it.'),
  trans.__('%1; others: %2'),
  trans.__(
    "%1=%2 is set, and TensorFlow then takes no more than %2 MiB of any GPU. %3 are asked for. Unset it before TensorFlow's first op:   %env %1=0"
  ),
  trans.__(', %1'),
  trans.__(', and all that is free of GPU %1'),
  trans.__(', with --restart'),
  trans.__("--release is TensorFlow's alone: nothing that %1 took goes back by itself."),
  trans.__('1 GPU'),
  trans.__('; %1 are held besides'),
  trans.__('A GPU is named twice (%1); CUDA would then show none.'),
  trans.__('A cell runs there: it is parked between cells only.'),
  trans.__('A cell waits for it, or what a page has asked: interrupt its kernel.'),
  trans.__('A process can use one MIG instance, and nothing beside it. Name one.'),
  trans.__(
    'A process that holds so much of GPU %1 could not surely come back: that needs %2 (free without your processes: %3). With less memory (`%tf_gpu limit`, `growth`) it can be parked.'
  ),
  trans.__('A profiler has run in it, which drivers do not park with certainty. Restart, and do not profile.'),
  trans.__(
    'A tf.data pipeline there prefetches to the GPU, and may use it at any time. Delete its iterator first (`del` and its name).'
  ),
  trans.__('Another library'),
  trans.__('Ask your administrator to remove it, or name another directory in TFGPU_MAGIC_DIR.'),
  trans.__(
    "Attribution is not available here: the driver does not name this machine's processes, as in some containers. Notebooks that have loaded tfgpu_magic show their own figures, and all else is shown as others."
  ),
  trans.__("By today's figures it comes back only when %1 more of GPU %2 are free."),
  trans.__('CUDA does not show this process GPU %1, and did when it was asked.'),
  trans.__('CUDA is running in this %1 already, and does not show it GPU %2.'),
  trans.__('CUDA is running in this %1 already, and only TensorFlow can be kept from GPUs now.'),
  trans.__('CUDA is running in this %1 already, and was told before not to show all GPUs.'),
  trans.__(
    'CUDA is running in this %1 already, so the order of its GPUs is fixed, and TensorFlow ignores the order of a list.'
  ),
  trans.__('GPU %1 is divided by MIG, which the driver cannot park.'),
  trans.__(
    'GPU %1 is full. If an operation has failed for that in this %2 already, restart it: TensorFlow may hang at the next one.'
  ),
  trans.__('GPU %1 is hidden from TensorFlow, so nothing can be set for it.'),
  trans.__('GPU %1 is hidden now, so `%2` no longer counts.'),
  trans.__('GPU %1 is in MIG mode; name an instance of it: %2.'),
  trans.__(
    "GPU %1 is too old for CUDA's memory pools, which --release needs, and TensorFlow would end this process at its first op."
  ),
  trans.__("GPU %1 shares the machine's memory, so nothing would be gained."),
  trans.__('GPU %1: %2'),
  trans.__('GPU %1: a share is of %2, which the driver allows all processes of this cgroup together.'),
  trans.__(
    'GPU %1: no process is listed for %2. Of your processes, these have the driver open and are in no list: %3. End those that you do not need.'
  ),
  trans.__(
    'GPU %1: the driver does not tell %2, so a part of that is no known size. Name a size instead, as in `%tf_gpu limit 2GiB`.'
  ),
  trans.__(
    'GPU %1: the driver does not tell how much memory it has, and only TensorFlow takes a limit that is no part of that. Limit TensorFlow alone, with its own magic, `tf_gpu`; or say `growth`.'
  ),
  trans.__('Hidden from TensorFlow: GPU %1.'),
  trans.__('Hidden from this %1, PyTorch and JAX included: GPU %2.'),
  trans.__('Host memory must take %1; what parking may fill of it: %2 (`tfgpu doctor` says why).'),
  trans.__('If PyTorch or JAX is to use the GPU, call `%1` instead.'),
  trans.__('In force: `%1`.'),
  trans.__('In this process it is unset now.'),
  trans.__('It gets no more.'),
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
  trans.__('It is unset now, which counts if PyTorch has taken no memory yet.'),
  trans.__(
    'It shares GPU memory with another process, which drivers before 610 do not survive, and newer ones are not trusted with.'
  ),
  trans.__("It uses CUDA's managed memory, or may use it, which the driver cannot park."),
  trans.__("It uses the GPU through NVIDIA's MPS, or may, and nobody has seen such a process parked."),
  trans.__('It was called off.'),
  trans.__(
    'Its GPU state cannot be had back: the driver found too little room on the way. Run cells again to save what is in host memory, then restart it, which frees what it still holds.'
  ),
  trans.__('JAX grows to %1 of a GPU at most, its own default, where no limit is set.'),
  trans.__(
    "Keras computes with %1 here and may import TensorFlow too, which is kept from the GPUs; for TensorFlow's own use of them say what it may take, as in `%2`."
  ),
  trans.__(
    "Keras' backend is %1 here, and %tf_gpu sets TensorFlow's memory only. `%gpu` sets what %1 takes for Keras too."
  ),
  trans.__('Logical CPUs would switch off what set_memory_growth was told; %1 keeps it on.'),
  trans.__('Memory growth under the ceiling'),
  trans.__('Memory of GPU %1 is promised and not taken yet: %2.'),
  trans.__('NCCL has started in it, as several GPUs under one strategy need it; drivers park it badly or not.'),
  trans.__('NVML does not start: %1. See whether nvidia-smi says more.'),
  trans.__('Name another directory in TFGPU_MAGIC_DIR.'),
  trans.__('No GPU may be used here: the ceiling is `%1`.'),
  trans.__(
    'No NVIDIA driver was found: its library %1 could not be opened. Install the driver, or start the container with its GPUs (docker run --gpus all ...).'
  ),
  trans.__(
    'No disk is there for it: an administrator names a directory and how much each user may fill, as in c.TfGpuMagics.parking_disk = "500GiB in /scratch".'
  ),
  trans.__('No limit is set for GPU %1: %2. To hide a GPU, name the others with `visible`.'),
  trans.__('No policy is set.'),
  trans.__(
    "No policy is set: TensorFlow's own defaults hold, and it takes nearly all that is free of each GPU it uses, and a CUDA context on each it sees."
  ),
  trans.__("No policy is set: TensorFlow's own defaults hold."),
  trans.__('No policy is set: the defaults of %1 hold.'),
  trans.__('Nobody inside it says that it is idle: park it from its own notebook.'),
  trans.__('Not applied.'),
  trans.__('Not started.'),
  trans.__('Nothing can be written to %1: %2.'),
  trans.__('Nothing is taken at the start; memory grows up to %1 in all, as far as that much is free then.'),
  trans.__(
    "Nothing limits %1 in the programs and spawned workers that this %2 starts: call `%3` in them, use `IsolatedExecutor`, or write `!tfgpu run`. A process that is forked after TensorFlow's import can use no GPU."
  ),
  trans.__('On disk it needs %1; what parking may fill in %2: %3.'),
  trans.__('Only TensorFlow has logical GPUs: say `%1` with its own magic, `tf_gpu`. Every framework takes a `limit`.'),
  trans.__(
    'Parking is off: its way back was tried on a simulated driver only, so nobody knows what a real one makes of the work. `%config TfGpuMagics.parking = "ask"` in its notebook turns it on.'
  ),
  trans.__('PyTorch allocates through a pluggable allocator, which heeds no limit.'),
  trans.__(
    'PyTorch before 2.10 is held on its `cuda:0` from its start, and on each other GPU from the end of the cell that first uses it, in a program never. To hold it on one GPU throughout, show only that one: `visible 1`.'
  ),
  trans.__(
    'PyTorch has taken %1 of GPU %2 already, and is to have %3. `torch.cuda.empty_cache()` gives back what it keeps and does not use.'
  ),
  trans.__('Remove it, or name another directory in TFGPU_MAGIC_DIR.'),
  trans.__('Restart, and say it again.'),
  trans.__('So TensorFlow uses the CPU.'),
  trans.__('So `%1` cannot be set.'),
  trans.__('So much is not free now.'),
  trans.__('Something else has locked it, or has moved its state away; whoever did has to bring it back.'),
  trans.__(
    "Something in this %1 holds a CUDA context%2, and TensorFlow does not know of it. Either TensorFlow's GPU allocators exist already (device_lib.list_local_devices(), tf.test.is_gpu_available() and v1 Sessions make them), and it would accept the setting and not enforce it; or another library%3 uses the GPU. Nobody can tell which, so nothing is promised."
  ),
  trans.__('TensorFlow %1 is older than 2.16, the oldest that tfgpu_magic was tested with.'),
  trans.__(
    'TensorFlow does not use GPU %1 (too few multiprocessors beside the others, or too old for its build), and mistakes the numbers of the others while it can see it.'
  ),
  trans.__(
    'TensorFlow does not use every GPU that CUDA shows it, and mistakes the numbers of others. Restart, and hide that GPU with `%tf_gpu visible` before TensorFlow is imported.'
  ),
  trans.__(
    'TensorFlow failed to start on a GPU that had no room left, and may hang for good if it is tried again in this %1. Leave it alone, and restart.'
  ),
  trans.__(
    "TensorFlow finds no GPU, though CUDA shows it GPU %1: it uses the CPU, and no limit is needed. `tfgpu doctor` looks for the cause, such as a library of CUDA's that is missing."
  ),
  trans.__('TensorFlow is already using %1 in this %2%3, so its memory cannot be changed any more.'),
  trans.__('TensorFlow is being imported at this moment; say it again when that is done.'),
  trans.__('TensorFlow is built without CUDA here: it uses the CPU, and no limit is needed.'),
  trans.__('TensorFlow is not imported yet.'),
  trans.__('TensorFlow sees other GPUs'),
  trans.__('TensorFlow takes all that is free there'),
  trans.__('TensorFlow takes memory there as it needs it'),
  trans.__('TensorFlow took less than %1, as less was free: %2'),
  trans.__('TensorFlow will run on the CPU.'),
  trans.__("TensorFlow's allocators were made before its first op, with options of their own"),
  trans.__('The GPUs are being asked for the first time.'),
  trans.__('The GPUs sleep to save power, and nobody uses them. They are asked again when somebody does.'),
  trans.__('The NVIDIA driver answers, and lists no GPU. Check nvidia-smi, and that the container was given GPUs.'),
  trans.__(
    'The NVIDIA driver changed under the running system: its library and its kernel module are of different versions. Reload the module, or reboot.'
  ),
  trans.__(
    'The NVIDIA driver is loaded, and this process has no %1. In a container, start it with its GPUs (docker run --gpus all ...); elsewhere, `sudo nvidia-smi` makes the file.'
  ),
  trans.__(
    'The NVIDIA driver is not loaded: its library was opened, and no kernel module answered. Load it (modprobe nvidia) until nvidia-smi lists the GPUs.'
  ),
  trans.__('The NVIDIA driver refused: NVML was started without permission. Ask for access to /dev/nvidia*.'),
  trans.__('The ceiling `%1` does not hold it. Restart for that.'),
  trans.__('The ceiling `%1`, from %2, was not understood: %3 `%4` holds.'),
  trans.__('The ceiling here is `%1`'),
  trans.__('The ceiling here is `%1`, and it cannot be held now.'),
  trans.__('The ceiling here is `%1`, and nothing lower was asked of GPU %2: %3.'),
  trans.__('The ceiling here is `%1`, and without figures of the GPUs only this holds it.'),
  trans.__('The ceiling here is `%1`.'),
  trans.__(
    'The compute mode of GPU %1 is not the default, so that what takes the room for a return would keep the process off it. An administrator can change it: `nvidia-smi -c DEFAULT`.'
  ),
  trans.__('The driver does not say what it holds of GPU %1.'),
  trans.__('The driver does not say what it holds of any GPU.'),
  trans.__('The driver gives no figures: %1'),
  trans.__('The driver has declined it (%1: %2).'),
  trans.__('The driver has not answered (%1). What becomes of it is found out, and it is set right.'),
  trans.__('The driver parks nothing on %1 processors.'),
  trans.__('The driver shows no GPU here.'),
  trans.__(
    "The driver's list of processes is invalid on GPU %1: rows that cannot be are left out. Another version of the driver may give them right."
  ),
  trans.__("The driver's version is %1, and parking needs %2 or newer."),
  trans.__("The driver's version is %1, and to disk it parks from %2 on."),
  trans.__('The file on disk cannot be written or read (%1). Nothing is lost, and it is as it was before.'),
  trans.__(
    'The kernel denies this process %1 (%2), as in a container that has lost its devices when `systemctl daemon-reload` ran on the host. Programs that use its GPUs already go on. Restart the container.'
  ),
  trans.__('The kernel with pid %1 cannot be asked: %2'),
  trans.__('The last to take its part finds too little: take a lower limit.'),
  trans.__(
    'The open kernel module (%1) is loaded, under which the end of a process that was parked once has stopped whole machines. A configuration file can allow it all the same, and no `%config` can: c.TfGpuMagics.parking_on_open_module = True.'
  ),
  trans.__('The server cannot show the GPUs: something is wrong in tfgpu_magic. Its log says what.'),
  trans.__('The table cannot be drawn: something is wrong in tfgpu_magic. `%tf_gpu status` may say what.'),
  trans.__('There is no GPU %1 here; there %2.'),
  trans.__('There is no such process any more.'),
  trans.__("There is room by the driver's figures, but it does not give it (%1: %2)."),
  trans.__('These figures are %1 s old: the driver is slow to answer.'),
  trans.__('These threads, tasks or callbacks may use the GPU while it is parked: %1. Stop them first.'),
  trans.__(
    'This driver (%1) ends a process in which NVML was loaded and unloaded badly, and here that cannot be ruled out. Restart, and turn parking on before anything uses the GPU.'
  ),
  trans.__('This driver counts the memory that it reserves for itself as used.'),
  trans.__("This machine's processes cannot be read at the moment."),
  trans.__("This machine's processes cannot be read."),
  trans.__(
    'This process was forked from one in which CUDA was running, and CUDA cannot be used in it. Start the program anew, or fork it before TensorFlow lists or uses a GPU.'
  ),
  trans.__('This replaces `%1`.'),
  trans.__('This switches off what set_memory_growth was told: a limit without --grow is taken at once.'),
  trans.__('This undoes what set_logical_device_configuration was told for GPU %1 (%2).'),
  trans.__("Together they may take %1 of GPU %2 (%3), and CUDA's context about %4 beside that."),
  trans.__('Warning: GPU %1: %2'),
  trans.__('Warning: it does not fit any more.'),
  trans.__(
    "Warning: of GPU %1 this leaves %2 for CUDA's libraries (cuDNN, cuBLAS, NCCL), which no limit counts; TensorFlow itself would leave %3. If an operation fails for it, take a lower limit."
  ),
  trans.__('What TensorFlow does not use goes back to the driver by `tfgpu_magic.give_back()`.'),
  trans.__(
    'What TensorFlow does not use goes back to the driver once no cell has run for a while (`c.TfGpuMagics.release_after`), or at once by `%tf_gpu free`.'
  ),
  trans.__('What is free on GPU %1 is unknown here, so whether it fits was not checked.'),
  trans.__('What is free was not checked.'),
  trans.__('What it has given the GPU to do did not end within %1 s. It goes on as before; say it again.'),
  trans.__('What it has given the GPU to do has ended in an error: %1'),
  trans.__("With --release TensorFlow's memory comes from CUDA's own pool, and that keeps to no limit."),
  trans.__('Without a limit it can stay: it grows as needed by itself.'),
  trans.__('Without a limit, and counted as what it holds: %1.'),
  trans.__('Without a limit, and counted as what they hold: %1.'),
  trans.__(
    'Your parked processes may fill %1 of host memory together, an administrator says, and %2 are filled: bring one back first.'
  ),
  trans.__('`%1`'),
  trans.__('`%1` cannot be had in full now.'),
  trans.__('`%1` has no effect here: TensorFlow sees no GPU.'),
  trans.__('`%1` holds for %2, from first use on.'),
  trans.__('`%1` is for every framework.'),
  trans.__('`%1` is in force already.'),
  trans.__("`%1` is in force from TensorFlow's first op on."),
  trans.__('`%1` is in force, also for programs that are started from here.'),
  trans.__('`%1` is in force.'),
  trans.__('`%1` is, for every framework.'),
  trans.__("`%1` waits for TensorFlow's import, and is checked against the GPUs again then."),
  trans.__("`%1` waits for TensorFlow's import."),
  trans.__('`%1` waits for its import.'),
  trans.__('`%1` was asked for'),
  trans.__("`%1` was asked for, and other code has changed %2's limit since: %3."),
  trans.__('`%1`%2 is NOT in force.'),
  trans.__('`%1`, from %2,'),
  trans.__('`%1`: %2'),
  trans.__(
    '`%1`: memory growth is one setting for all GPUs of a process, and a limit without --grow switches it off on every one of them.'
  ),
  trans.__('a cell'),
  trans.__('a kernel'),
  trans.__('a notebook in another container'),
  trans.__('a process in a container of yours'),
  trans.__('a process that does not answer'),
  trans.__('a process that ended'),
  trans.__('all'),
  trans.__('all that is free'),
  trans.__('all that is free is taken'),
  trans.__('allocated'),
  trans.__('an isolated call'),
  trans.__('and %1 more'),
  trans.__('another user'),
  trans.__('are GPUs %1'),
  trans.__('are no GPUs'),
  trans.__('cell'),
  trans.__('choose another GPU or a lower limit'),
  trans.__('default: no limit'),
  trans.__('default: up to %1'),
  trans.__('error %1'),
  trans.__('every framework'),
  trans.__('further processes'),
  trans.__('growth, gives back'),
  trans.__('hidden'),
  trans.__('how much is free'),
  trans.__('how much memory it has'),
  trans.__('in use'),
  trans.__('is GPU %1'),
  trans.__('it has none'),
  trans.__('its devices'),
  trans.__('kernel'),
  trans.__('leave out what has changed that'),
  trans.__('limit'),
  trans.__('memory grows'),
  trans.__('memory grows up to it'),
  trans.__('no GPU has it'),
  trans.__('no collector could be started in %1 (%2).'),
  trans.__('no limit'),
  trans.__('no list of processes: %1'),
  trans.__('no process is listed for it'),
  trans.__('no process listed'),
  trans.__('none'),
  trans.__('not listed yet'),
  trans.__('not told whose'),
  trans.__('not used by TensorFlow'),
  trans.__('notebook'),
  trans.__('nothing'),
  trans.__('others'),
  trans.__('peak'),
  trans.__('peaks'),
  trans.__('pid %1'),
  trans.__('pool'),
  trans.__('process %1 cannot be read: the system does not answer for it'),
  trans.__('process %1 is no isolated call of a kernel of this server'),
  trans.__('process %1 is no kernel of this server'),
  trans.__('process %1 is not ended'),
  trans.__('program'),
  trans.__('reserved'),
  trans.__('restart: `%1`'),
  trans.__('session'),
  trans.__(
    "set_memory_growth was called for some of these GPUs and not for others; TensorFlow's first op would fail on that."
  ),
  trans.__('since %1'),
  trans.__('so much is taken'),
  trans.__('split %1'),
  trans.__('start the %1 again'),
  trans.__('the %1 it has'),
  trans.__('the CPU'),
  trans.__('the CPU is divided into %1'),
  trans.__('the GPU is lost. Others go on'),
  trans.__('the GPU needs a reset. Others go on'),
  trans.__('the GPUs'),
  trans.__('the configuration'),
  trans.__('the driver answers: %1'),
  trans.__('the driver counts %1 of GPU %2 for this %3, its CUDA context included'),
  trans.__('the driver does not know what is wrong (unknown error)'),
  trans.__('the driver does not support it on this GPU'),
  trans.__('the driver gives no permission to read it'),
  trans.__('the driver tells nothing of it; its notebooks do'),
  trans.__("the driver's answer took too long"),
  trans.__('the limit is %1'),
  trans.__('the limit is taken at once%1, unless the policy has `--grow`'),
  trans.__('the limit of GPU %1 is %2'),
  trans.__('the notebook with pid %1 has nothing to put off'),
  trans.__('this'),
  trans.__('this notebook'),
  trans.__('unknown'),
  trans.__('unset'),
  trans.__('up to %1, as it needs it'),
  trans.__('what it needs, as it needs it'),
  trans.__('with this, %1 of its %2 are promised: %3%4.'),
  trans.__('your %1 (GPU: %2)'),
  trans.__("your %1 (the driver's limit)")
];
