"""Joins the board, the kernels' reports and the owners to the table of a live view, from second to second."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.assemble import assemble, together
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.owners import Owners
from tfgpu_magic.monitor.rows import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfgpu_magic.monitor.board import Look
    from tfgpu_magic.monitor.history import History
    from tfgpu_magic.monitor.owners import Notebook
    from tfgpu_magic.monitor.report import Report
    from tfgpu_magic.monitor.snapshot import Snapshot
    from tfgpu_magic.monitor.unused import Record
    from tfgpu_magic.parking.record import Entry

PID_TRUSTED_FOR = 10.0
"""Seconds in which no pid is reused by another process on the same GPU."""


class Watcher:
    """A watcher of the GPUs. Not thread-safe.

    Args:
        live: the board; None opens one.
        kernel: the pid that is "this notebook"; 0 is none.
        report: makes this kernel's own report; None leaves that out.
    """

    def __init__(
        self, live: Live | None = None, *, kernel: int = 0, report: Callable[[Snapshot], Report] | None = None
    ) -> None:
        self.live = live or Live()
        self._report = report
        self._owners = Owners(kernel, trust=PID_TRUSTED_FOR)
        self._used_since: float | None = None
        self._before: tuple[object, ...] = ()

    def see(self, notebooks: Mapping[int, Notebook] | None = None) -> Table:
        """Return the table as it is now.

        Args:
            notebooks: what a server has of its kernels, by pid.

        Raises:
            MonitorError: as `Live.look`.
        """
        live = self.live
        return self._table(live.look(), live.reports(), notebooks or {}, live.unused(), live.parked())

    def news(self, notebooks: Mapping[int, Notebook]) -> Table | None:
        """Return the table; None while board, reports and notebooks are unchanged, which takes microseconds.

        Raises:
            MonitorError: as `Live.look`.
        """
        before, self._before = self._before, ()  # a failure is news, and so is what follows it
        look, reports, record, parked = self.live.look(), self.live.reports(), self.live.unused(), self.live.parked()
        now = _identity(look), reports, notebooks, record.time if record else None, parked
        table = self._table(look, reports, notebooks, record, parked) if now != before else None
        self._before = now
        return table

    def history(self) -> History:
        """Return what was used in the last hour.

        Raises:
            MonitorError: as `Live.look`.
        """
        return self.live.history()

    def close(self) -> None:
        """Close the board."""
        self.live.close()

    def _table(
        self,
        look: Look,
        reports: tuple[Report, ...],
        notebooks: Mapping[int, Notebook],
        record: Record | None,
        parked: tuple[Entry, ...],
    ) -> Table:
        snapshot, known = look.snapshot, together(reports, notebooks)
        own = self._own(snapshot)
        owners = self._owners.find(
            {process.pid for process in snapshot.processes}, known, {entry.pid for entry in parked}
        )
        unused = record.unused(snapshot.listed_at) if record and snapshot.listed_at else {}
        table = assemble(snapshot, owners, own, reports, known, unused, parked)
        return replace(table, stale_since=look.stale_since, every=look.every)

    def _own(self, snapshot: Snapshot) -> Report | None:
        """Make this kernel's report, with the time since when the driver's lists should have it."""
        if self._report is None:
            return None
        own = self._report(snapshot)
        if self._used_since is None and any(use.taken for use in own.uses):
            self._used_since = snapshot.time
        return replace(own, used_since=self._used_since)


def failure(error: Exception, broken: str, time: float = 0.0) -> Table:
    """Make a table of what went wrong, for a view that must go on.

    Args:
        error: any exception of `Watcher.see` or `Watcher.news`.
        broken: the text for a fault of this package.
        time: when the GPUs were last read, in seconds since the epoch; 0 when they never were.
    """
    return Table(error=str(error) if isinstance(error, MonitorError) else broken, time=time)


def _identity(look: Look) -> tuple[object, ...]:
    """Return the values by which a look differs from the one before."""
    # With no message, the text may be the reason for that.
    first = look.message.text if look.message.sequence == 0 else ""
    return look.message.sequence, first, look.stale_since
