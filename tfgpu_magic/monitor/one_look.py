"""One look at the GPUs and at whose memory it is, as a table; `watcher` is for views that look repeatedly."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor import unused_file
from tfgpu_magic.monitor.assemble import assemble, together
from tfgpu_magic.monitor.bounded import within
from tfgpu_magic.monitor.directory import BoardDirectory
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.owners import Owners
from tfgpu_magic.monitor.pids import began
from tfgpu_magic.monitor.report_files import AllReportFiles
from tfgpu_magic.monitor.rows import Table
from tfgpu_magic.monitor.tabulate import UNATTRIBUTED
from tfgpu_magic.parking import client

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tfgpu_magic.monitor.owners import Notebook, Owner
    from tfgpu_magic.monitor.report import Report
    from tfgpu_magic.monitor.snapshot import Snapshot
    from tfgpu_magic.parking.record import Entry

    Known = tuple[
        Mapping[int, Owner],
        tuple[Report, ...],
        Mapping[int, Notebook],
        Mapping[tuple[str, int], float],
        tuple[Entry, ...],
    ]

HANGS = "Whose the processes are is not known: this machine's processes cannot be read at the moment."


def table(report: Callable[[Snapshot], Report] | None = None, *, timeout: float = 1.5) -> Table:
    """Look at the GPUs now, and find whose memory it is.

    Args:
        report: makes this kernel's own report; None leaves that out.
        timeout: seconds to wait for the driver, and as long again for this machine's processes.

    Returns:
        The rows, even where there is no driver or it hangs: then the table's `error` says so.
    """
    snapshot = look(timeout)
    known = within(timeout, partial(_known, {process.pid for process in snapshot.processes}, snapshot.listed_at))
    owners, reports, notebooks, unused, parked = known or ({}, (), {}, {}, ())
    made = assemble(snapshot, owners, report(snapshot) if report else None, reports, notebooks, unused, parked)
    if known is None:
        made = replace(made, notes=(*(note for note in made.notes if note != UNATTRIBUTED), HANGS))
    return made


def owners(pids: Collection[int], *, timeout: float = 1.5) -> Mapping[int, Owner]:
    """Find the owners of pids, as a table names them; none where this machine's processes cannot be read in time.

    Args:
        pids: the process ids.
        timeout: seconds to wait.
    """
    known = within(timeout, partial(_known, pids))
    return known[0] if known else {}


def reporting(pids: Collection[int], *, timeout: float = 1.5) -> Mapping[int, Owner]:
    """Find the owners of pids that report of themselves, or make calls, whether they hold memory or not.

    Args:
        pids: the process ids.
        timeout: seconds to wait.
    """
    return within(timeout, lambda: Owners().name(pids, together(_reports()[0], {}))) or {}


def _known(pids: Collection[int], listed_at: float | None = None) -> Known:
    """Find the owners of pids, the other kernels' reports, their notebooks, what is held without use, and is parked."""
    reports, parked = _reports()
    notebooks = together(reports, {})
    owners = Owners().find(pids, notebooks, {entry.pid for entry in parked})
    return owners, reports, notebooks, _unused(listed_at), parked


def _unused(listed_at: float | None) -> Mapping[tuple[str, int], float]:
    """Read what a collector has found of memory that is held without use; nothing where none looks now."""
    with contextlib.suppress(MonitorError), BoardDirectory() as place:
        record = unused_file.kept(place)
        if record is not None and listed_at is not None:
            lines = {(gpu, pid): line for gpu, rows in record.lines.items() for pid, line in rows.items()}
            return {key: one for key, one in record.unused(listed_at).items() if _still(key[1], lines[key].began)}
    return {}


def _still(pid: int, start: int) -> bool:
    """Tell whether a pid is still that of the process that began then; one of another namespace is not known to be."""
    return start != 0 and began(pid) == start


def _reports() -> tuple[tuple[Report, ...], tuple[Entry, ...]]:
    """Read the other kernels' reports and what is parked; nothing where the board cannot be used."""
    with (
        contextlib.suppress(MonitorError),
        BoardDirectory() as place,
        contextlib.closing(AllReportFiles(place)) as everywhere,
    ):
        return everywhere.read(), client.entries(everywhere.places)
    return (), ()
