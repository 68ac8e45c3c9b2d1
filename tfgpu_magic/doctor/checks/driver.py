"""Whether the driver and CUDA answer, which kernel module serves them, and what they say of GPUs and processes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from tfgpu_magic.doctor.cuda_child import ROOM
from tfgpu_magic.doctor.finding import outcome
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.frameworks import cuda as library
from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.message import Message, Severity
from tfgpu_magic.machine.driver.nvml_errors import MODULE
from tfgpu_magic.policy.process_state import DEVICES

ANSWERS = outcome("driver.answers", Severity.GOOD, "NVIDIA's driver {version} answered in {seconds} s.")
SIMULATED = outcome(
    "driver.simulated",
    Severity.NOTE,
    "These GPUs are simulated, for trying and for tests: what they compute means nothing.",
)
ABSENT = outcome("driver.absent", Severity.FAULT, "{error}", f"{phrases.TRY}\n  {phrases.TRY_COMMAND}")
FAILS = outcome(
    "driver.fails",
    Severity.FAULT,
    "{error} Neither CUDA nor TensorFlow was started: they may hang with it.",
    "See whether nvidia-smi hangs too, and what the kernel says of it; a reboot may be needed:\n"
    "  sudo dmesg | grep -i -e nvrm -e xid",
)
UNASKED = outcome("driver.unasked", Severity.FAULT, "{error}", "Then check again:\n  tfgpu doctor")


def driver(machine: ThisMachine) -> Iterator[Message]:
    """Yield whether the driver lists its GPUs, or why it does not."""
    begun = time.monotonic()
    snapshot = machine.snapshot
    if snapshot.error is not None:
        yield (ABSENT if snapshot.absent else UNASKED if snapshot.unasked else FAILS)(error=snapshot.error)
    else:
        yield ANSWERS(version=snapshot.driver, seconds=round(time.monotonic() - begun, 3))
        if snapshot.simulated:
            yield SIMULATED()


# --- the kernel module ---

MODULE_LOADED = outcome("kernel_module.loaded", Severity.GOOD, "The {kind} one, {version}.")

_LINE = re.compile(r"NVRM version: +NVIDIA UNIX (?P<kind>.*?) Kernel Module(?: for \S+)? +(?P<version>[\d.]+)")


def kernel_module(machine: ThisMachine) -> Iterator[Message]:
    """Yield the kernel module's version. Source: the driver's README, "The /proc file system interface"."""
    found = _LINE.search(machine.text(MODULE) or "")
    if found and not machine.snapshot.simulated:
        yield MODULE_LOADED(kind="open" if "Open" in found["kind"] else "proprietary", version=found["version"])


# --- GPUs ---

GPU_WORKS = outcome("gpus.works", Severity.GOOD, "{gpu}: {name}, {free_bytes} of {total_bytes} free.")
GPU_FAILS = outcome(
    "gpus.fails",
    Severity.FAULT,
    "{gpu}: {name}. {error}.",
    "The kernel says why; a reset or a reboot may bring it back:\n  sudo dmesg | grep -i -e nvrm -e xid",
)
GPU_MIG = outcome(
    "gpus.mig",
    Severity.NOTE,
    "{gpu}: {name}, in MIG mode. Its instances: {instances}. A program sees one of them at most, and nothing of the "
    "whole GPU.",
    "To choose one, in a notebook or for a program:\n"
    "  %tf_gpu visible {first}\n"
    '  tfgpu run "visible {first}" -- program.py',
)
GPU_MIG_EMPTY = outcome(
    "gpus.mig-empty",
    Severity.FAULT,
    "{gpu}: {name}, in MIG mode and without an instance: no program can use it.",
    "As root, list what it can be cut into, or end MIG mode:\n"
    "  nvidia-smi mig -i {gpu} -lgip\n"
    "  nvidia-smi -i {gpu} -mig 0",
)
GPU_UNLISTED = outcome(
    "gpus.unlisted",
    Severity.FAULT,
    "The kernel module has {count} GPUs, and the driver lists {listed}. Missing is the {name} at {place}.",
    "The kernel says why; a reboot may bring it back:\n  sudo dmesg | grep -i -e nvrm -e xid",
)


def gpus(machine: ThisMachine) -> Iterator[Message]:
    """Yield the state of each GPU."""
    snapshot = machine.snapshot
    for gpu in snapshot.gpus:
        of_gpu = {"gpu": gpu.label, "name": gpu.name or "unknown"}
        if gpu.error:
            yield GPU_FAILS(**of_gpu, error=gpu.error[:1].upper() + gpu.error[1:])
        elif gpu.mig:
            instances = [one.label for one in snapshot.gpus if one.index == gpu.index and one.instance is not None]
            yield GPU_MIG(**of_gpu, instances=instances, first=instances[0]) if instances else GPU_MIG_EMPTY(**of_gpu)
        else:
            yield GPU_WORKS(**of_gpu, total_bytes=gpu.capacity, free_bytes=gpu.free)
    if machine.has_gpus and not (snapshot.simulated or _is_container(machine)):  # a container has what it was given
        yield from _unlisted(machine)


def _unlisted(machine: ThisMachine) -> Iterator[Message]:
    """Yield the GPUs that the kernel module has and NVML does not list. Source: the chapter of `kernel_module`."""
    listed = {gpu.uuid for gpu in machine.snapshot.gpus if gpu.instance is None}
    files = sorted((machine.root / _GPUS).glob("*/information"))
    found = [dict(_FACT.findall(machine.text(str(file.relative_to(machine.root))) or "")) for file in files]
    known = [one for one in found if one.get("GPU UUID") in listed or not _is_hidden(machine, one)]
    for one in known if len(known) > len(listed) else ():
        if one.get("GPU UUID") not in listed:
            facts = {"name": one.get("Model"), "place": one.get("Bus Location")}
            yield GPU_UNLISTED(count=len(known), listed=len(listed), **facts)


def _is_hidden(machine: ThisMachine, one: dict[str, str]) -> bool:
    """Return whether no process, or not this one, may use a GPU, as in the cgroup of a scheduler's job."""
    file = machine.root / f"dev/nvidia{one.get('Device Minor')}"
    return one.get("GPU Excluded") == "Yes" or (file.exists() and not os.access(file, os.R_OK | os.W_OK))


def _is_container(machine: ThisMachine) -> bool:
    """Return whether this may be a container, by what its maker leaves in it."""
    cgroup = machine.text("/proc/self/cgroup") or ""
    return (
        any(name in machine.environ for name in ("KUBERNETES_SERVICE_HOST", "APPTAINER_NAME", "SINGULARITY_NAME"))
        or any((machine.root / name).exists() for name in (".dockerenv", "run/.containerenv", "run/systemd/container"))
        or re.search(r"[/:.-](kubepods|docker|libpod|lxc|containerd)\b", cgroup) is not None
    )


_GPUS, _FACT = "proc/driver/nvidia/gpus", re.compile(r"^(.+?):[ \t]+(.+?)\s*$", re.MULTILINE)


# --- CUDA ---

CUDA_WORKS = outcome(
    "cuda.works",
    Severity.GOOD,
    "CUDA {version} starts and shows programs {shown}. Beside its tensors, each takes {context_bytes} of a GPU that it "
    "uses.",
)
CUDA_NOT_TRIED = outcome(
    "cuda.not-tried",
    Severity.NOTE,
    "CUDA {version} starts and shows programs {shown}. Whether one can use a GPU was not tried: that is done where "
    "{room_bytes} are free.",
)
CUDA_HIDDEN = outcome(
    "cuda.hidden",
    Severity.WARNING,
    "CUDA shows programs no GPU: CUDA_VISIBLE_DEVICES is `{visible}` here.",
    "Unless a scheduler such as Slurm has set it, this shows all of them:\n  unset CUDA_VISIBLE_DEVICES",
)
CUDA_NOT_GIVEN = outcome(
    "cuda.not-given",
    Severity.WARNING,
    "Slurm gave this job no GPU: CUDA_VISIBLE_DEVICES is `{visible}`.",
    "Ask for one, as here:\n  sbatch --gres=gpu:1 ...",
)
CUDA_NO_LIBRARY = outcome(
    "cuda.no-library",
    Severity.FAULT,
    "CUDA's driver library libcuda.so.1 cannot be opened, and NVML's can: {error}",
    "A container has it where this variable has `compute`:\n  NVIDIA_DRIVER_CAPABILITIES=compute,utility",
)
CUDA_FAILS = outcome(
    "cuda.fails",
    Severity.FAULT,
    "CUDA does not start: {error}.",
    "These files must be there, nvidia-uvm among them, and you must be allowed to open them. Else the kernel may say "
    "why:\n  ls -l /dev/nvidia*\n  sudo dmesg | grep -i -e nvrm -e xid",
)
CUDA_REFUSED = outcome(
    "cuda.refused",
    Severity.FAULT,
    "CUDA starts, and a program cannot use GPU {gpu}: {error}.",
    "Its compute mode may forbid it; this shows the mode:\n  nvidia-smi -q -d COMPUTE -i {gpu}",
)

NO_DEVICES = "NoDevFiles"
"""What Slurm, and nobody else, sets CUDA_VISIBLE_DEVICES to in a job without a GPU. Source: its gpu plug-ins."""


def cuda(machine: ThisMachine) -> Iterator[Message]:
    """Yield whether CUDA works; nothing if it was not started."""
    facts, visible = machine.cuda.facts, machine.environ.get(DEVICES)
    if machine.cuda.why:
        yield CUDA_FAILS(error=machine.cuda.why)
    elif not facts:
        return
    elif "library" in facts:
        yield CUDA_NO_LIBRARY(error=facts["library"])
    elif facts["code"] == library.NO_DEVICE and visible is not None:
        yield (CUDA_NOT_GIVEN if visible == NO_DEVICES else CUDA_HIDDEN)(visible=visible)
    elif facts["code"]:
        yield CUDA_FAILS(error=facts["name"])
    else:
        version = None if facts["version"] is None else "{}.{}".format(*facts["version"])
        shown = [f"GPU {machine.label(uuid)}" for uuid in facts["shown"]]
        made = facts.get("context")
        if made is None:
            yield CUDA_NOT_TRIED(version=version, shown=shown, room_bytes=ROOM)
        elif made["code"]:
            yield CUDA_REFUSED(gpu=machine.label(made["gpu"]), error=made["name"])
        else:
            took = facts["listed"]["held"] or facts["took"]
            yield CUDA_WORKS(version=version, shown=shown, context_bytes=took)


# --- pids ---

PIDS_TOLD = outcome(
    "pids.told", Severity.GOOD, "The driver names processes by their pids here, and tells what each holds."
)
PIDS_NO_SIZES = outcome(
    "pids.no-sizes",
    Severity.NOTE,
    "The driver names processes by their pids here, and does not tell what each holds, as on WSL and on virtual GPUs.",
    "Notebooks that load the extension show their own figures.",
)
PIDS_UNTOLD = outcome(
    "pids.untold",
    Severity.WARNING,
    "The driver does not name the processes here by their pids, as in a container.",
    "Tables show such memory as others', or as that of no process listed, and notebooks that load the extension show "
    "their own figures. Drivers from 565.57 on name a container's own processes; with an older one, the container may "
    "have the machine's pids:\n"
    "  docker run --pid=host ...",
)


def pids(machine: ThisMachine) -> Iterator[Message]:
    """Yield how NVML lists a process whose pid is known; nothing if no process could use a GPU."""
    listed = machine.cuda.facts.get("listed")
    if listed is None or machine.cuda.facts["context"]["code"]:
        return
    if listed["own"]:
        yield PIDS_TOLD() if listed["held"] is not None else PIDS_NO_SIZES()
    else:
        yield PIDS_UNTOLD()
