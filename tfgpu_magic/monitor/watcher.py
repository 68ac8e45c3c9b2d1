"""Joins the board, the kernels' reports and the owners to the table of a live view, from second to second."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.rows import Table
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.owners import Owners
from tfgpu_magic.monitor.tabulate import make

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfgpu_magic.model.report import Report
    from tfgpu_magic.model.rows import Notebook
    from tfgpu_magic.model.snapshot import Snapshot
    from tfgpu_magic.monitor.board import Look
    from tfgpu_magic.monitor.live import Posted

PID_TRUSTED_FOR = 10.0
"""Seconds in which no pid is reused by another process on the same GPU."""


class Watcher:
    """A watcher of the GPUs, which raises `MonitorError` as `Live.look` does. Not thread-safe.

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
        """
        return self._table(self.live.look(), self.live.posted(), notebooks or {})

    def news(self, notebooks: Mapping[int, Notebook]) -> Table | None:
        """Return the table; None while board, reports and notebooks are unchanged, which takes microseconds."""
        before, self._before = self._before, ()  # a failure is news, and so is what follows it
        look, posted = self.live.look(), self.live.posted()
        now = _identity(look), posted, notebooks
        table = self._table(look, posted, notebooks) if now != before else None
        self._before = now
        return table

    def close(self) -> None:
        """Close the board."""
        self.live.close()

    def _table(self, look: Look, posted: Posted, notebooks: Mapping[int, Notebook]) -> Table:
        snapshot = look.snapshot
        known = replace(posted.known(self._owners, snapshot, notebooks), own=self._own(snapshot))
        return replace(make(snapshot, known), stale_since=look.stale_since, every=look.every)

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
