"""How far the parking of a process has come: what it knows of itself, and what others read of that in its report."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.frameworks import self_report
from tfgpu_magic.model.parts import parts
from tfgpu_magic.model.report import Parking, Report
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.report_files import ReportFiles
from tfgpu_magic.monitor.owners.pids import began
from tfgpu_magic.parking.states import UNSETTLED, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedProcess(Parking):
    """A process that is parked, on its way, or has been parked."""

    pid: int
    phase: Phase
    began: int = 0  # when another one began, in the system's ticks since its start (`pids.began`)
    name: str = ""  # what another one is called: a notebook's path, a program's name

    @property
    def size(self) -> int:
        """Bytes on all GPUs; as long as it is parked they are in the host's memory."""
        return sum(held.size for held in self.held)

    @property
    def parked(self) -> bool:
        """Whether its GPU state is in the host's memory, or on its way there or back."""
        return self.phase in UNSETTLED or self.phase is Phase.PARKED


def reports() -> tuple[Report, ...]:
    """Return the reports of this user's other processes; a board that cannot be read is a `MonitorError`."""
    with BoardDirectory() as place:
        return ReportFiles(place).read()


def post(entry: ParkedProcess | None) -> None:
    """Have this process report how far its parking has come, at once; None where it was never away."""
    how = None if entry is None else Parking(**_fields(entry))
    if how != self_report.parked():
        self_report.note_parked(how)
        for announce in parts("announce"):
            announce()


def entries(reports: Iterable[Report]) -> dict[int, ParkedProcess]:
    """Return what processes and this one report of their parking, by pid; what nobody understands is left out."""
    known = {report.pid: (report.parked, report.notebook) for report in reports}
    known[os.getpid()] = self_report.parked(), ""
    found = {}
    for pid, (how, name) in known.items():
        with contextlib.suppress(ValueError):  # a phase of a later version
            if how is not None and (start := began(pid)) is not None:
                fields = {**_fields(how), "phase": Phase(how.phase)}
                found[pid] = ParkedProcess(pid=pid, began=start, name=name, **fields)
    return found


def _fields(how: Parking) -> dict[str, Any]:
    return {one.name: getattr(how, one.name) for one in dataclasses.fields(Parking)}


def read() -> dict[int, ParkedProcess]:
    """Return what is parked, or has been, by pid; nothing where the board cannot be read."""
    with contextlib.suppress(MonitorError):
        return entries(reports())
    return {}


def parked(pid: int) -> ParkedProcess | None:
    """Return what is known of a process's parking; None of one that was never parked."""
    return read().get(pid)
