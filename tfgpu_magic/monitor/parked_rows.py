"""Makes rows of what is parked, from the parker's record alone. Pure.

A parked process is in no list of the driver's, and while its memory is copied the driver answers no question about it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.rows import Parked, ParkedState, ProcessRow
from tfgpu_magic.parking.states import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfgpu_magic.monitor.owners import Owner
    from tfgpu_magic.monitor.report import GpuUse, Report
    from tfgpu_magic.monitor.snapshot import Gpu
    from tfgpu_magic.parking.record import Entry

_STATES: Mapping[Phase, ParkedState] = {
    Phase.LOCKING: "parking",
    Phase.CHECKPOINTING: "parking",
    Phase.PARKED: "parked",
    Phase.RESTORING: "restoring",
    Phase.UNLOCKING: "restoring",
    Phase.FAILED: "failed",
}


def silenced(reports: Iterable[Report], entries: Iterable[Entry]) -> tuple[Report, ...]:
    """Return reports without the figures of what is parked: frameworks go on counting what no GPU holds for them."""
    gone = {entry.pid for entry in entries if entry.phase in _STATES}
    return tuple(one.without_figures() if one.pid in gone else one for one in reports)


def joined(
    gpu: Gpu,
    rows: Sequence[ProcessRow],
    entries: Sequence[Entry],
    owners: Mapping[int, Owner],
    uses: Mapping[int, GpuUse | None],
    listed_at: float,
) -> list[ProcessRow]:
    """Return a GPU's rows with what the record has of them, and a row for each process that is in no list.

    Args:
        gpu: the GPU.
        rows: its processes by the driver's list.
        entries: the record's processes.
        owners: the owner of each pid.
        uses: what processes report of this GPU, by pid.
        listed_at: when the driver's list was read, in seconds since the epoch.
    """
    listed, made = {row.pid: row for row in rows}, list(rows)
    for entry in entries:
        pid, row = entry.pid, listed.get(entry.pid)
        size = sum(held.size for held in entry.held if held.gpu == gpu.uuid)
        state = _state(entry, listed=row is not None, old=listed_at <= entry.since)
        if state is None or (row is None and size == 0):
            continue
        if row is None:
            row = _row(gpu.label, entry, owners.get(pid), uses.get(pid))
            made.append(row)
        behind = _largest(rows, pid) if state == "waiting" else ""
        parked = Parked(state=state, size=size, since=entry.since, behind=behind, trouble=entry.trouble)
        made[made.index(row)] = replace(row, parked=parked, unused=None)
    return made


def _state(entry: Entry, *, listed: bool, old: bool) -> ParkedState | None:
    """Return how far a process's parking has come; None where all is as usual.

    Args:
        entry: the process.
        listed: whether it is in the driver's list.
        old: whether that is older than what the record says: all figures of a table are to be of one time.
    """
    if entry.phase is Phase.BACK:
        return "restoring" if old and not listed else None
    if entry.phase is Phase.PARKED and old and listed:
        return "parking"
    return "waiting" if entry.phase is Phase.PARKED and entry.wanted else _STATES[entry.phase]


def _row(gpu: str, entry: Entry, owner: Owner | None, use: GpuUse | None) -> ProcessRow:
    """Return the row of a process that holds nothing of a GPU, since its memory is in the host's."""
    known = owner if owner is not None and owner.who in ("this", "mine") else None
    return ProcessRow(
        gpu=gpu,
        pid=entry.pid,
        kind="",
        who="mine" if known is None else known.who,  # the record is of this user's own processes
        owner=_called(entry) if known is None else known.text,
        held=None if entry.phase is Phase.FAILED else 0,
        use=use,
        notebook=None if known is None else known.notebook,
        kernel=entry.pid if known is None else known.kernel,
        call=known is not None and known.call,
        began=entry.began,
    )


def _called(entry: Entry) -> str:
    """Return a process's name as the record has it, which may be a path."""
    return PurePath(entry.name).name or f"process {entry.pid}"


def _largest(rows: Sequence[ProcessRow], pid: int) -> str:
    """Return whose row is the largest, but for that of one process."""
    others = [row for row in rows if row.pid != pid and row.known]
    return max(others, key=lambda row: row.known or 0).owner if others else ""
