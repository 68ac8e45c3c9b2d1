"""What the doctor's tests share: how it is run, and its findings by the names of their check and outcome."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.command.shell import TFGPU, Done
from tests.processes import PATIENCE, QUIET
from tests.slack import SLACK
from tfgpu_magic.doctor.checks.table import CHECKS, run_check
from tfgpu_magic.doctor.finding import REPORT
from tfgpu_magic.doctor.machine import ThisMachine as Here
from tfgpu_magic.ground.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfgpu_magic.simgpu import Machine


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of a report, each as a row of its JSON."""

    rows: list[dict[str, Any]]

    @property
    def names(self) -> list[str]:
        """Return the names of the findings, in their order."""
        return [row["name"] for row in self.rows]

    def facts(self, name: str) -> dict[str, Any]:
        """Return the facts of the one finding of this name."""
        (row,) = (row for row in self.rows if row["name"] == name)
        facts: dict[str, Any] = row["facts"]
        return facts

    def of(self, severity: str) -> list[str]:
        """Return the names of the findings that are so serious."""
        return [row["name"] for row in self.rows if row["severity"] == severity]


def doctor(machine: Machine, *words: str, env: Mapping[str, str] | None = None) -> Done:
    """Run `tfgpu doctor` on the machine to its end."""
    done: Done = machine.run(
        [*TFGPU, "doctor", *words],
        env={**QUIET, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE * SLACK,
    )
    return done


def read(text: str) -> Report:
    """Return a report from its JSON."""
    return Report(json.loads(text)["findings"])


def look(*names: str, here: Here | None = None) -> Report:
    """Do the checks of these names on the machine that this process is on."""
    here = here or Here()
    known = {check.__name__: check for check in CHECKS.values()}
    return Report([_row(one) for name in names for one in run_check(known[name], here)])


def _row(one: Message) -> dict[str, Any]:
    facts = json.loads(json.dumps(one.facts))
    return {"name": one.name, "severity": one.severity.value, "found": REPORT.found(one), "facts": facts}


def names(report: Report, checks: Iterable[str]) -> list[str]:
    """Return the names of the findings of some checks."""
    return [name for name in report.names if name.partition(".")[0] in checks]
