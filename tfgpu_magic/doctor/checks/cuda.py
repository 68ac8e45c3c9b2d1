"""Whether CUDA starts, a program can use a GPU, and the driver names processes by pids that mean them here."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic.doctor.children.driver import ROOM
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine
from tfgpu_magic.frameworks import cuda as library

WORKS = Outcome(
    "cuda.works",
    Severity.GOOD,
    "CUDA {version} starts and shows programs {shown}. Beside its tensors, each takes {context_bytes} of a GPU that it "
    "uses.",
)
NOT_TRIED = Outcome(
    "cuda.not-tried",
    Severity.NOTE,
    "CUDA {version} starts and shows programs {shown}. Whether one can use a GPU was not tried: that is done where "
    "{room_bytes} are free.",
)
HIDDEN = Outcome(
    "cuda.hidden",
    Severity.WARNING,
    "CUDA shows programs no GPU: CUDA_VISIBLE_DEVICES is `{visible}` here.",
    "To have all of them:\n  unset CUDA_VISIBLE_DEVICES",
)
NO_LIBRARY = Outcome(
    "cuda.no-library",
    Severity.FAULT,
    "CUDA's driver library libcuda.so.1 cannot be opened, and NVML's can: {error}",
    "A container has it where this variable has `compute`:\n  NVIDIA_DRIVER_CAPABILITIES=compute,utility",
)
FAILS = Outcome(
    "cuda.fails",
    Severity.FAULT,
    "CUDA does not start: {error}.",
    "These files must be there, nvidia-uvm among them, and you must be allowed to open them:\n  ls -l /dev/nvidia*",
)
REFUSED = Outcome(
    "cuda.refused",
    Severity.FAULT,
    "CUDA starts, and a program cannot use GPU {gpu}: {error}.",
    "Its compute mode may forbid it; this shows the mode:\n  nvidia-smi -q -d COMPUTE -i {gpu}",
)
SILENT = Outcome(
    "cuda.silent",
    Severity.FAULT,
    "The process that started CUDA gave no answer, though NVML answers: {why}",
    "See what the kernel says:\n  sudo dmesg | grep -i -e nvrm -e xid",
)


def cuda(machine: Machine) -> Iterator[Finding]:
    """Tell whether CUDA works; nothing where it was not started."""
    facts = machine.cuda.facts
    if machine.cuda.why:
        yield SILENT(why=machine.cuda.why)
    elif not facts:
        return
    elif "library" in facts:
        yield NO_LIBRARY(error=facts["library"])
    elif facts["code"] == library.NO_DEVICE and machine.visible is not None:
        yield HIDDEN(visible=machine.visible)
    elif facts["code"]:
        yield FAILS(error=facts["name"])
    else:
        version = None if facts["version"] is None else "{}.{}".format(*facts["version"])
        shown = [f"GPU {machine.label(uuid)}" for uuid in facts["shown"]]
        made = facts.get("context")
        if made is None:
            yield NOT_TRIED(version=version, shown=shown, room_bytes=ROOM)
        elif made["code"]:
            yield REFUSED(gpu=machine.label(made["gpu"]), error=made["name"])
        else:
            took = facts["listed"]["held"] or facts["took"]
            yield WORKS(version=version, shown=shown, context_bytes=took)


# --- pids ---

_INSTEAD = (
    "Tables show such memory as others', and notebooks that load the extension show their own figures. Drivers from "
    "565.57 on name a container's own processes; with an older one, the container may have the machine's pids:\n"
    "  docker run --pid=host ..."
)

PIDS_TOLD = Outcome(
    "pids.told", Severity.GOOD, "The driver names processes by their pids here, and tells what each holds."
)
PIDS_NO_SIZES = Outcome(
    "pids.no-sizes",
    Severity.NOTE,
    "The driver names processes by their pids here, and does not tell what each holds, as on WSL and on virtual GPUs.",
    "Notebooks that load the extension show their own figures.",
)
PIDS_FOREIGN = Outcome(
    "pids.foreign",
    Severity.WARNING,
    "The driver names processes by pids that mean others here, as in a container.",
    _INSTEAD,
)
PIDS_UNTOLD = Outcome(
    "pids.untold", Severity.WARNING, "The driver does not list a process of this machine that uses a GPU.", _INSTEAD
)


def pids(machine: Machine) -> Iterator[Finding]:
    """Tell how NVML lists a process of which the pid is known; nothing where none could use a GPU."""
    listed = machine.cuda.facts.get("listed")
    if listed is None or machine.cuda.facts["context"]["code"]:
        return
    if listed["own"]:
        yield PIDS_TOLD() if listed["held"] is not None else PIDS_NO_SIZES()
    else:
        yield PIDS_FOREIGN() if listed["others"] else PIDS_UNTOLD()
