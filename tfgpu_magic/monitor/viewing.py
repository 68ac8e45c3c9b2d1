"""What a live view shows, from second to second: the board, the kernels' reports and the owners put together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.owners import Owners, notebook_of
from tfgpu_magic.monitor.rows import Table, make
from tfgpu_magic.monitor.spoken import spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfgpu_magic.monitor.board import Look
    from tfgpu_magic.monitor.history import History
    from tfgpu_magic.monitor.owners import Notebook
    from tfgpu_magic.monitor.report import Report
    from tfgpu_magic.monitor.snapshot import Snapshot

TRUST = 10.0
"""Seconds in which nobody's pid is given to somebody else and lands on the same GPU."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What there is to see at one time.

    Attributes:
        look: the board.
        table: the rows.
        reports: what other kernels say of themselves.
    """

    look: Look
    table: Table
    reports: tuple[Report, ...] = ()


class Viewing:
    """One who watches. Not for two threads at once.

    Args:
        live: the board; None opens one.
        kernel: the pid that is "this notebook"; 0 is none.
        report: asks this kernel what it says of itself; None leaves that out.
    """

    def __init__(
        self, live: Live | None = None, *, kernel: int = 0, report: Callable[[Snapshot], Report] | None = None
    ) -> None:
        self.live = live or Live()
        self._report = report
        self._owners = Owners(kernel, trust=TRUST)
        self._used_since: float | None = None

    def see(self, notebooks: Mapping[int, Notebook] | None = None) -> Sight:
        """See how things stand now.

        Args:
            notebooks: what a server knows of its kernels, by pid.

        Raises:
            MonitorError: as `Live.look`.
        """
        look = self.live.look()
        reports = self.live.reports()
        known = together(reports, notebooks or {})
        snapshot = look.snapshot
        own = self._own(snapshot)
        owners = self._owners.find({process.pid for process in snapshot.processes}, known)
        table = spoken(make(snapshot, owners, own, reports, known), own, reports, known)
        return Sight(look, table, reports)

    def history(self) -> History:
        """Return what was used in the last hour.

        Raises:
            MonitorError: as `Live.look`.
        """
        return self.live.history()

    def close(self) -> None:
        """Let go of the board."""
        self.live.close()

    def _own(self, snapshot: Snapshot) -> Report | None:
        """This kernel's word, with the time since when the driver's lists should have it."""
        if self._report is None:
            return None
        own = self._report(snapshot)
        if self._used_since is None and any(use.taken for use in own.uses):
            self._used_since = snapshot.time
        return replace(own, used_since=self._used_since)


def together(reports: Iterable[Report], notebooks: Mapping[int, Notebook]) -> dict[int, Notebook]:
    """Put together what kernels and their server know of them, by pid.

    Names and paths are the server's. Since when a kernel is idle it knows itself: a server takes whatever passes for
    activity, a page that connects too. It is busy if either says so, since one that no cell keeps busy may be so.
    """
    known = {one.pid: notebook_of(one) for one in reports}
    for pid, served in notebooks.items():
        own = known.get(pid)
        if own is not None and own.state and served.state in ("idle", "busy", ""):
            state = "busy" if "busy" in (own.state, served.state) else own.state
            known[pid] = replace(served, state=state, active=own.active)
        else:
            known[pid] = served
    return known
