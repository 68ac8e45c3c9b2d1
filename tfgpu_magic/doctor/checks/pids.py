"""Whether the driver names the processes of this machine, or container, by pids that mean them here."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine

_INSTEAD = (
    "Tables show such memory as others', and notebooks that load the extension show their own figures. Drivers from "
    "565.57 on name a container's own processes; with an older one, the container may have the machine's pids:\n"
    "  docker run --pid=host ..."
)

TOLD = Outcome("told", Severity.GOOD, "The driver names processes by their pids here, and tells what each holds.")
NO_SIZES = Outcome(
    "no-sizes",
    Severity.NOTE,
    "The driver names processes by their pids here, and does not tell what each holds, as on WSL and on virtual GPUs.",
    "Notebooks that load the extension show their own figures.",
)
FOREIGN = Outcome(
    "foreign",
    Severity.WARNING,
    "The driver names processes by pids that mean others here, as in a container.",
    _INSTEAD,
)
UNTOLD = Outcome(
    "untold", Severity.WARNING, "The driver does not list a process of this machine that uses a GPU.", _INSTEAD
)


def check(machine: Machine) -> Iterator[Finding]:
    """Tell how NVML lists a process of which the pid is known; nothing where none could use a GPU."""
    listed = None if machine.cuda is None else machine.cuda.facts.get("listed")
    if listed is None or machine.cuda is None or machine.cuda.facts["context"]["code"]:
        return
    if listed["own"]:
        yield TOLD() if listed["held"] is not None else NO_SIZES()
    else:
        yield FOREIGN() if listed["others"] else UNTOLD()
