"""One look at the GPUs and at whose memory it is, as a table; `watcher` is for views that look repeatedly."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.bounded import within
from tfgpu_magic.monitor.directory import BoardDirectory
from tfgpu_magic.monitor.live import Posted, read_posted
from tfgpu_magic.monitor.look import look
from tfgpu_magic.monitor.owners import Owners, together
from tfgpu_magic.monitor.pids import began, maker
from tfgpu_magic.monitor.report_files import ReportFiles
from tfgpu_magic.monitor.tabulate import UNATTRIBUTED, Known, make
from tfgpu_magic.monitor.unused import RecordReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tfgpu_magic.model.report import Report
    from tfgpu_magic.model.rows import Table
    from tfgpu_magic.model.snapshot import Snapshot
    from tfgpu_magic.monitor.owners import Owner

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
    known = within(timeout, lambda: _posted().known(Owners(), snapshot, {}, _still))
    made = make(snapshot, replace(known or Known(), own=report(snapshot) if report else None))
    if known is None:
        made = replace(made, notes=(*(note for note in made.notes if note != UNATTRIBUTED), HANGS))
    return made


def owners(
    pids: Collection[int], here: Collection[int] = (), *, call: bool = False, timeout: float = 1.5
) -> Mapping[int, Owner]:
    """Find the owners of pids, as a table names them; none where this machine's processes cannot be read in time.

    Args:
        pids: the process ids.
        here: further pids, of processes that report of themselves or make calls, whether they hold memory or not.
        call: whether this process is an isolated call: "this notebook" is then the one that made it.
        timeout: seconds to wait.
    """

    def find() -> Mapping[int, Owner]:
        posted = _posted()
        return Owners(maker() if call else None).find(
            pids, together(posted.reports, {}), {*posted.away, *here}, posted.names
        )

    return within(timeout, find) or {}


def _still(pid: int, start: int) -> bool:
    """Tell whether a pid is still that of the process that began then; one of another namespace is not known to be."""
    return start != 0 and began(pid) == start


def _posted() -> Posted:
    """Read what is posted on the board; nothing where it cannot be used."""
    with (
        contextlib.suppress(MonitorError),
        BoardDirectory() as place,
        contextlib.closing(ReportFiles(place)) as everywhere,
    ):
        return read_posted(everywhere, RecordReader())
    return Posted()
