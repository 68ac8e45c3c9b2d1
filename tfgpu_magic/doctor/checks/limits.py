"""What the driver holds this process to, and whether an administrator's limits are in force."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from tfgpu_magic.doctor.finding import outcome
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.ground.message import Message, Severity
from tfgpu_magic.root import file
from tfgpu_magic.root.file import Mistake

HELD = outcome(
    "limits.held",
    Severity.GOOD,
    "The driver holds all processes of this cgroup together to {limit_bytes} of GPU {gpu}.",
)
NONE = outcome(
    "limits.none",
    Severity.NOTE,
    "{file} has limits, and the driver holds this process to none.",
    "This shows the cgroups that have one:\n  tfgpu limits --show",
)
FLAWED = outcome(
    "limits.flawed",
    Severity.FAULT,
    "The limits stay as they were: {flaw}",
    "Mend it; this tries it:\n  tfgpu limits --dry-run",
)
AWAY = outcome(
    "limits.away",
    Severity.WARNING,
    "{file} has limits, and nothing has stated here for a minute that they are in force. A ceiling bounds kernels "
    "meanwhile.",
    "As root, start the service, or see why it has ended, as with a driver older than 615:\n"
    "  systemctl enable --now tfgpu-limits\n"
    "  systemctl status tfgpu-limits",
)
NOT_SET = outcome(
    "limits.not-set",
    Severity.WARNING,
    "Not all limits are in force: {count} are not, or are left as they were.",
    "This says which, and why:\n  tfgpu limits --show",
)

FRESH = 60.0
"""Seconds since the service last wrote; it does so each second."""


def limits(machine: ThisMachine) -> Iterator[Message]:
    """Yield which limits hold, and whether those of the file are in force."""
    held = [gpu for gpu in machine.snapshot.gpus if gpu.limit is not None]
    yield from (HELD(gpu=gpu.label, limit_bytes=gpu.limit) for gpu in held)
    try:
        rules = file.parse(file.read(machine.root / str(file.FILE).lstrip("/")))
    except Mistake as flaw:
        yield FLAWED(flaw=str(flaw))
        return
    if rules is None:
        return
    path = machine.root / "run/tfgpu_limits/limits.json"
    if not path.exists() or time.time() - path.stat().st_mtime > FRESH:
        yield AWAY(file=str(file.FILE))
        return
    state = json.loads(path.read_text())
    count = sum(bool(why) for gpus in state["limits"].values() for _, _, why in gpus.values()) + len(state["left"])
    if count:
        yield NOT_SET(count=count)
    if machine.has_gpus and not held:
        yield NONE(file=str(file.FILE))
