"""What the driver holds this process to, whether an administrator's limits are in force, and why they may not be."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from tfgpu_magic.doctor.child import ask
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.root import file
from tfgpu_magic.root.file import UNLIMITED, Mistake

NONE = Outcome(
    "limits.none", Severity.GOOD, "The driver could hold users to limits of GPU memory, and holds this process to none."
)
HARD = Outcome(
    "limits.hard",
    Severity.GOOD,
    "The driver, by the controller {back_end}, holds all processes in {cgroup} together to {hard_bytes} of GPU {gpu}; "
    "{used_bytes} are in use, and {soft_bytes} are guaranteed.",
)
SOFT = Outcome(
    "limits.soft",
    Severity.GOOD,
    "The driver, by the controller {back_end}, guarantees all processes in {cgroup} together {soft_bytes} of GPU "
    "{gpu}; {used_bytes} are in use.",
)
CANNOT = Outcome(
    "limits.cannot",
    Severity.NOTE,
    "The limits of {file} are not in force: {why}.",
    "A ceiling bounds kernels meanwhile.",
)
FLAWED = Outcome(
    "limits.flawed",
    Severity.FAULT,
    "The limits stay as they were: {flaw}",
    "Mend it; this tries it:\n  tfgpu limits --dry-run",
)
AWAY = Outcome(
    "limits.away",
    Severity.WARNING,
    "{file} has limits, and nothing gives them to the driver: the service is not running.",
    "As root:\n  systemctl enable --now tfgpu-limits",
)
NOT_SET = Outcome("limits.not-set", Severity.WARNING, "The limit of {cgroup} is not in force on {gpu}: {why}.")
STOPS = Outcome(
    "limits.stops",
    Severity.WARNING,
    "The controller dmem, by which the driver limits, ends at {cgroup}: what is below has no limit of its own.",
    "As root:\n  echo +dmem > {cgroup}/cgroup.subtree_control",
)

FRESH = 60.0
"""Seconds since the service last wrote; it does so each second."""
_CODE = "from tfgpu_magic.doctor.children.limits import main; main()"


def limits(machine: ThisMachine) -> Iterator[Finding]:
    """Tell what holds, and why what should hold does not."""
    path, rules = machine.root / str(file.FILE).lstrip("/"), None
    try:
        rules = file.parse(file.read(path))
    except Mistake as flaw:
        yield FLAWED(flaw=str(flaw))
    answer = ask(_CODE).facts if machine.driver.works else {}
    if answer.get("why") and rules:
        yield CANNOT(file=str(file.FILE), why=answer["why"])
    if answer.get("why", "unasked"):
        return
    for one in answer["held"]:
        yield (SOFT if one["hard_bytes"] == UNLIMITED else HARD)(back_end=answer["back_end"], **one)
    yield from (STOPS(cgroup=cgroup) for cgroup in answer["stops"] if rules or answer["held"])
    if rules:
        yield from _enforced(machine)
    elif not answer["held"]:
        yield NONE()


def _enforced(machine: ThisMachine) -> Iterator[Finding]:
    state = machine.root / "run/tfgpu_limits/limits.json"
    if not state.exists() or time.time() - state.stat().st_mtime > FRESH:
        yield AWAY(file=str(file.FILE))
        return
    for cgroup, gpus in json.loads(state.read_text())["limits"].items():
        yield from (NOT_SET(cgroup=cgroup, gpu=machine.label(gpu), why=why) for gpu, (_, _, why) in gpus.items() if why)
