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
UNSEEN = Outcome(
    "limits.unseen",
    Severity.NOTE,
    "What the driver holds this process to cannot be seen from here: {why}.",
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
    "{file} has limits, and nothing has stated here for a minute that they are in force: is the service running?",
    "As root:\n  systemctl enable --now tfgpu-limits",
)
NOT_SET = Outcome("limits.not-set", Severity.WARNING, "The limit of {cgroup} is not in force on {gpu}: {why}.")
LEFT = Outcome("limits.left", Severity.WARNING, "What {cgroup} may hold is left as it was: {why}.")
OTHERS = Outcome(
    "limits.others",
    Severity.WARNING,
    "Not all limits of other cgroups are in force: {count} are not, or are left as they were.",
    "This says which, and why:\n  tfgpu limits --show",
)
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
    if not answer or (answer["why"] and not rules):
        return
    if answer["why"]:
        yield CANNOT(file=str(file.FILE), why=answer["why"]) if answer["none"] else UNSEEN(why=answer["why"])
        yield from () if answer["none"] else _enforced(machine, answer["own"])
        return
    for one in answer["held"]:
        yield (SOFT if one["hard_bytes"] == UNLIMITED else HARD)(**one)
    yield from (STOPS(cgroup=cgroup) for cgroup in answer["stops"] if rules or answer["held"])
    if rules:
        yield from _enforced(machine, answer["own"])
    elif not answer["held"]:
        yield NONE()


def _enforced(machine: ThisMachine, own: str) -> Iterator[Finding]:
    """Tell what is not in force of the cgroups that this process is in; others are counted, and not named."""
    path = machine.root / "run/tfgpu_limits/limits.json"
    if not path.exists() or time.time() - path.stat().st_mtime > FRESH:
        yield AWAY(file=str(file.FILE))
        return
    state, others = json.loads(path.read_text()), 0
    not_set = [
        (cgroup, gpu, why) for cgroup, gpus in state["limits"].items() for gpu, (_, _, why) in gpus.items() if why
    ]
    for cgroup, gpu, why in [*not_set, *((cgroup, "", why) for cgroup, why in state.get("left", {}).items())]:
        if not f"{own}/".startswith(f"{cgroup}/"):
            others += 1
        elif gpu:
            yield NOT_SET(cgroup=cgroup, gpu=machine.label(gpu), why=why)
        else:
            yield LEFT(cgroup=cgroup, why=why)
    if others:
        yield OTHERS(count=others)
