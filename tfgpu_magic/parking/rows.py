"""What every view's rows show of parked processes: a fact of rows, from what they report of themselves."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from tfgpu_magic.model.report import GpuUse, Report
from tfgpu_magic.model.rows import Parked, ParkedState, ProcessRow
from tfgpu_magic.model.snapshot import Gpu, Snapshot
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.owners.attribution import Owner
from tfgpu_magic.monitor.table.tabulate import Known
from tfgpu_magic.parking import reported
from tfgpu_magic.parking.reported import ParkedProcess
from tfgpu_magic.parking.states import Phase

_STATES: Mapping[Phase, ParkedState] = {
    Phase.LOCKING: "parking",
    Phase.CHECKPOINTING: "parking",
    Phase.PARKED: "parked",
    Phase.RESTORING: "restoring",
    Phase.UNLOCKING: "restoring",
    Phase.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class ParkedRows:
    """What is known of the parking of processes that live; a `RowFact`."""

    entries: tuple[ParkedProcess, ...]

    @property
    def pids(self) -> frozenset[int]:
        """The processes."""
        return frozenset(entry.pid for entry in self.entries)

    @property
    def silent(self) -> frozenset[int]:
        """Those that are away: frameworks go on counting what no GPU holds for them."""
        return frozenset(entry.pid for entry in self.entries if entry.phase in _STATES)

    def added(
        self, gpu: Gpu, rows: Sequence[ProcessRow], known: Known, uses: Mapping[int, GpuUse | None], snapshot: Snapshot
    ) -> list[ProcessRow]:
        """Return a GPU's rows with what is known of them, and a row for each process that is in no list.

        While its memory is copied, the driver answers no question about a process; when it is parked, no list has it.
        What was on a GPU that has gone is with the first one.
        """
        made = {row.pid: row for row in rows}
        largest = heapq.nlargest(2, (row for row in rows if row.known), key=lambda row: row.known or 0)
        first, there = gpu is snapshot.gpus[0], {one.uuid for one in snapshot.gpus}
        listed_at = snapshot.listed_at or snapshot.time
        for entry in self.entries:
            pid, row = entry.pid, made.get(entry.pid)
            size = sum(held.size for held in entry.held if held.gpu == gpu.uuid)
            gone = sum(held.size for held in entry.held if held.gpu not in there) if first else 0
            state = _state(entry, listed=row is not None, old=listed_at <= entry.since)
            if state is None or (row is None and size + gone == 0):
                continue
            row = row or _row(gpu.label, entry, known.owners.get(pid), uses.get(pid))
            behind = next((one.owner for one in largest if one.pid != pid), "") if state == "waiting" else ""
            trouble = entry.trouble or ("gone" if gone else "")
            parked = Parked(
                state=state, size=size + gone, since=entry.since, behind=behind, trouble=trouble, disk=entry.disk
            )
            made[pid] = replace(row, parked=parked, unused=None)
        return list(made.values())


def read(_: Iterable[BoardDirectory], reports: Iterable[Report]) -> ParkedRows | None:
    """Return what processes report of their parking."""
    found = tuple(reported.entries(reports).values())
    return ParkedRows(found) if found else None


def _state(entry: ParkedProcess, *, listed: bool, old: bool) -> ParkedState | None:
    """Return how far a process's parking has come; None where all is as usual.

    All figures of a table are to be of one time: the driver's list, where it may be listed, may be older than what the
    process reports.
    """
    if entry.phase is Phase.BACK:
        return "restoring" if old and not listed else None
    if entry.phase is Phase.PARKED and old and listed:
        return "parking"
    return "waiting" if entry.phase is Phase.PARKED and entry.wanted else _STATES[entry.phase]


def _row(gpu: str, entry: ParkedProcess, owner: Owner | None, use: GpuUse | None) -> ProcessRow:
    """Return the row of a process that holds nothing of a GPU, since its memory is in the host's."""
    if owner is None or owner.who not in ("this", "mine"):  # reports are of this user's own processes
        called = PurePath(entry.name).name or f"process {entry.pid}"  # it may be a path
        owner = Owner(pid=entry.pid, who="mine", text=called, kernel=entry.pid)
    return ProcessRow(
        gpu=gpu,
        pid=entry.pid,
        kind="",
        who=owner.who,
        owner=owner.text,
        held=None if entry.phase is Phase.FAILED else 0,
        use=use,
        notebook=owner.notebook,
        kernel=owner.kernel,
        child=owner.child,
        call=owner.call,
        began=entry.began,
    )
