"""Whether CUDA starts, and a program can use a GPU: a process of its own makes a context where there is room for it."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic.config import cuda
from tfgpu_magic.doctor.children.cuda import ROOM
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine

WORKS = Outcome(
    "works",
    Severity.GOOD,
    "CUDA {version} starts and shows programs {shown}. Beside its tensors, each takes {context_bytes} of a GPU that it "
    "uses.",
)
NOT_TRIED = Outcome(
    "not-tried",
    Severity.NOTE,
    "CUDA {version} starts and shows programs {shown}. Whether one can use a GPU was not tried: that is done where "
    "{room_bytes} are free.",
)
HIDDEN = Outcome(
    "hidden",
    Severity.WARNING,
    "CUDA shows programs no GPU: CUDA_VISIBLE_DEVICES is `{visible}` here.",
    "To have all of them:\n  unset CUDA_VISIBLE_DEVICES",
)
NO_LIBRARY = Outcome(
    "no-library",
    Severity.FAULT,
    "CUDA's driver library libcuda.so.1 cannot be opened, and NVML's can: {error}",
    "A container has it where this variable has `compute`:\n  NVIDIA_DRIVER_CAPABILITIES=compute,utility",
)
FAILS = Outcome(
    "fails",
    Severity.FAULT,
    "CUDA does not start: {error}.",
    "These files must be there, nvidia-uvm among them, and you must be allowed to open them:\n  ls -l /dev/nvidia*",
)
REFUSED = Outcome(
    "refused",
    Severity.FAULT,
    "CUDA starts, and a program cannot use GPU {gpu}: {error}.",
    "Its compute mode may forbid it; this shows the mode:\n  nvidia-smi -q -d COMPUTE -i {gpu}",
)
HANGS = Outcome(
    "hangs",
    Severity.FAULT,
    "CUDA did not start within {seconds} s, though NVML answers.",
    "See what the kernel says:\n  sudo dmesg | grep -i -e nvrm -e xid",
)
ENDED = Outcome("ended", Severity.FAULT, "The process that started CUDA ended without an answer: {why}")


def check(machine: Machine) -> Iterator[Finding]:
    """Tell whether CUDA works; nothing where the driver does not."""
    answer = machine.cuda
    if answer is None:
        return
    facts = answer.facts
    if answer.late:
        yield HANGS(seconds=answer.seconds)
    elif not facts:
        yield ENDED(why=answer.why)
    elif "library" in facts:
        yield NO_LIBRARY(error=facts["library"])
    elif facts["code"] == cuda.NO_DEVICE and machine.visible is not None:
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
