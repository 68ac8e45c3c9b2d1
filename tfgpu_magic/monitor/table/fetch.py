"""Fetches the table and the owners: `table` and `owners` once, `Watcher` from second to second for a live view.

It joins the figures, the kernels' reports and what else is posted on the board, and finds whose the processes are.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic import host
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model import phrases
from tfgpu_magic.model.rows import Table
from tfgpu_magic.model.said import in_commas, say
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.report_files import ReportFiles
from tfgpu_magic.monitor.board.unused import continued, recent
from tfgpu_magic.monitor.driver.look import SHOW_LATE_FOR, look
from tfgpu_magic.monitor.live import Live, last
from tfgpu_magic.monitor.owners.attribution import Owners, together
from tfgpu_magic.monitor.owners.pids import maker, unlisted
from tfgpu_magic.monitor.table.limited import limited
from tfgpu_magic.monitor.table.tabulate import UNATTRIBUTED, UNLISTED, Known, make
from tfgpu_magic.probe import within
from tfgpu_magic.units import rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tfgpu_magic.model.report import Report
    from tfgpu_magic.model.rows import Notebook, Owner
    from tfgpu_magic.model.snapshot import Snapshot
    from tfgpu_magic.monitor.board.snapshot_file import Look

PID_TRUSTED_FOR = 10.0
"""Seconds in which no pid is reused by another process on the same GPU."""

MOST_SUSPECTS = 8
"""How many of the processes that may have memory of nobody's are named."""

HANGS = "Whose the processes are is not known: this machine's processes cannot be read at the moment."


class Posted(NamedTuple):
    """What is posted on the board beside the snapshots.

    Attributes:
        reports: the other kernels' reports.
        names: what renamed notebooks are called, by their kernels' ids.
    """

    reports: tuple[Report, ...] = ()
    names: Mapping[str, str] = MappingProxyType({})

    def known(self, owners: Owners, snapshot: Snapshot, served: Mapping[int, Notebook]) -> Known:
        """Return what is known of a snapshot's processes.

        Args:
            owners: finds whose they are.
            snapshot: the driver's figures.
            served: what a server has of its kernels, by pid.
        """
        notebooks = together(self.reports, served)
        return Known(
            owners=owners.find(
                {process.pid for process in snapshot.processes}, notebooks, (), self.names, users_of(snapshot)
            ),
            reports=self.reports,
            notebooks=notebooks,
            this=owners.this,
        )


def users_of(snapshot: Snapshot) -> dict[int, int]:
    """Return the numbers of processes' users, by pid, as far as a collector has read them."""
    return {row.pid: row.uid for row in snapshot.processes if row.uid is not None}


def posted(files: ReportFiles) -> Posted:
    """Read what is posted on the board now, beside the snapshots."""
    return Posted(files.read(), files.names)


def table(
    report: Callable[[Snapshot], Report] | None = None,
    *,
    timeout: float = 1.5,
    patience: float | None = None,
    slow: Callable[[], None] | None = None,
) -> Table:
    """Look at the GPUs now, and find whose memory it is.

    Args:
        report: makes this kernel's own report; None leaves that out.
        timeout: seconds to wait for the driver, and as long again for this machine's processes.
        patience: seconds to wait for the driver where no live view has its figures; None is `timeout`.
        slow: called once where that takes more than three seconds.

    Returns:
        The rows, even where there is no driver or it hangs: then the table's `error` says so.
    """
    published = last()
    live = published is not None and not published.error and time.time() - published.time <= SHOW_LATE_FOR
    wait = timeout if patience is None or live else patience
    snapshot = look(wait, slow=slow, before=limited(published) if published and live else None)
    if published is not None:
        snapshot = continued(snapshot, published)
    known = within(timeout, lambda: _read().known(Owners(), snapshot, {}))
    made = make(snapshot, replace(known or Known(), own=report(snapshot) if report else None))
    if any(row.owner.text == UNLISTED for row in made.processes):
        made = replace(made, notes=(*made.notes, *filter(None, [within(timeout, partial(_suspects, made))])))
    if known is None:
        made = replace(made, notes=(*(note for note in made.notes if note != UNATTRIBUTED), HANGS))
    return made


def _suspects(made: Table) -> str:
    """Say which of this user's processes may have memory for which none is listed; nothing where none may."""
    found, rests = _read(), [row.process for row in made.processes if row.owner.text == UNLISTED]
    known = {os.getpid(), *(one.pid for one in found.reports), *(row.process.pid for row in made.processes)}
    pids = unlisted(known)[:MOST_SUSPECTS]  # who reports of itself is known, and what it has started
    if not pids:
        return ""
    owners = Owners().find((), together(found.reports, {}), pids, found.names)
    return say(
        "GPU {gpus}: no process is listed for {size}. Of your processes, these have the driver open and are in no "
        "list: {names}. End those that you do not need.",
        gpus=", ".join(row.gpu for row in rests),
        size=rounded(sum(row.held or 0 for row in rests)),
        names=in_commas(f"{phrases.plain(owners[pid].text, longest=120)} ({pid})" for pid in pids),
    )


def owners(pids: Collection[int], here: Collection[int] = (), *, call: bool = False) -> Mapping[int, Owner]:
    """Find the owners of pids, as a table names them; none where this machine's processes cannot be read in 1.5 s.

    Args:
        pids: the process ids.
        here: further pids, of processes that report of themselves or make calls, whether they hold memory or not.
        call: whether this process is an isolated call: "this notebook" is then the one that made it.
    """
    caller = host.caller if call else ""

    def find() -> Mapping[int, Owner]:
        found, published = _read(), last()
        users = users_of(published) if published is not None and recent(published, time.time()) else {}
        finder = Owners(maker() if call else None, this=f"this {caller}" if caller else "")
        return finder.find(pids, together(found.reports, {}), here, found.names, users)

    return within(1.5, find) or {}


def _read() -> Posted:
    """Read what is posted on the board; nothing where it cannot be used."""
    with contextlib.suppress(MonitorError), BoardDirectory() as place:
        return posted(ReportFiles(place))
    return Posted()


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
        return self._table(self.live.look(), posted(self.live.report_files), notebooks or {})

    def news(self, notebooks: Mapping[int, Notebook]) -> Table | None:
        """Return the table; None while board, reports and notebooks are unchanged, which takes microseconds."""
        before, self._before = self._before, ()  # a failure is news, and so is what follows it
        look, found = self.live.look(), posted(self.live.report_files)
        now = _identity(look), found, notebooks
        table = self._table(look, found, notebooks) if now != before else None
        self._before = now
        return table

    def close(self) -> None:
        """Close the board."""
        self.live.close()

    def _table(self, look: Look, found: Posted, notebooks: Mapping[int, Notebook]) -> Table:
        snapshot = limited(look.snapshot)
        known = replace(found.known(self._owners, snapshot, notebooks), own=self._own(snapshot))
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
