"""Fetches the table and the owners: `table` and `owners` once, `Watcher` from second to second for a live view.

It joins the figures, the kernels' reports and what else is posted on the board, and finds whose the processes are.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground import phrases, process_kind
from tfgpu_magic.ground.bounded import run_within
from tfgpu_magic.ground.rows import Table
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFiles
from tfgpu_magic.machine.owners.attribution import Owners, merge_notebooks
from tfgpu_magic.machine.owners.pids import calling_pid, find_unlisted
from tfgpu_magic.machine.see import SHOW_LATE_FOR, Watch, snapshot
from tfgpu_magic.tell.tabulate import ProcessFacts, make_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tfgpu_magic.ground.report import Report
    from tfgpu_magic.ground.rows import Notebook, Owner
    from tfgpu_magic.ground.snapshot import Process, Snapshot
    from tfgpu_magic.machine.board.snapshot_file import Reading

PID_TRUSTED_FOR = 10.0
"""Seconds in which no pid is reused by another process on the same GPU."""

MOST_SUSPECTS = 8
"""How many of the processes that may have memory of nobody's are named."""


class BoardContents(NamedTuple):
    """What is posted on the board beside the snapshots.

    Attributes:
        reports: the other kernels' reports.
        names: what renamed notebooks are called, by their kernels' ids.
    """

    reports: tuple[Report, ...] = ()
    names: Mapping[str, str] = MappingProxyType({})

    def facts(
        self, owners: Owners, snapshot: Snapshot, served: Mapping[int, Notebook], here: Collection[int] = ()
    ) -> ProcessFacts:
        """Return what is known of a snapshot's processes.

        Args:
            owners: finds whose they are.
            snapshot: the driver's figures.
            served: what a server has of its kernels, by pid.
            here: further pids, of processes that are known to be here.
        """
        notebooks = merge_notebooks(self.reports, served)
        pids = {process.pid for process in snapshot.processes}
        found = owners.find(pids, notebooks, here, self.names, users_of(snapshot))
        return ProcessFacts(owners=found, reports=self.reports, notebooks=notebooks, this=owners.this)


def users_of(snapshot: Snapshot) -> dict[int, int]:
    """Return the numbers of processes' users, by pid, as far as a collector has read them."""
    return {row.pid: row.uid for row in snapshot.processes if row.uid is not None}


def read_board(files: ReportFiles) -> BoardContents:
    """Read what is posted on the board now, beside the snapshots."""
    return BoardContents(files.read(), files.names)


def table(
    report: Callable[[Snapshot], Report] | None = None,
    *,
    timeout: float = 1.5,
    patience: float | None = None,
    slow: Callable[[], None] | None = None,
) -> Table:
    """Return the GPUs as they are now, with the owners of their memory.

    Args:
        report: makes this kernel's own report; None leaves that out.
        timeout: seconds to wait for the driver, and as long again for this machine's processes.
        patience: seconds to wait for the driver where no live view has its figures; None is `timeout`.
        slow: called once where that takes more than three seconds.

    Returns:
        The rows, even where there is no driver or it hangs: then the table's `error` says so.
    """
    seen = snapshot(timeout if patience is None else patience, late=SHOW_LATE_FOR, slow=slow)
    facts = run_within(timeout, lambda: _read_own_board().facts(Owners(), seen, {}))
    made = make_table(seen, replace(facts or ProcessFacts(hangs=True), own=report(seen) if report else None))
    unlisted = [row.process for row in made.processes if row.unlisted == "never"]
    suspects = run_within(timeout, partial(_suspects, made, unlisted)) if unlisted else None
    return replace(made, notes=(*made.notes, suspects)) if suspects else made


def _suspects(made: Table, rests: Sequence[Process]) -> str:
    """Return which of this user's processes may hold memory that no list has; empty if none may."""
    found = _read_own_board()
    known = {os.getpid(), *(one.pid for one in found.reports), *(row.process.pid for row in made.processes)}
    pids = find_unlisted(known)[:MOST_SUSPECTS]  # who reports of itself is known, and what it has started
    if not pids:
        return ""
    owners = Owners().find((), merge_notebooks(found.reports, {}), pids, found.names)
    gpus, size = ", ".join(row.gpu for row in rests), rounded(sum(row.held or 0 for row in rests))
    names = ", ".join(f"{phrases.clean(owners[pid].text, longest=120)} ({pid})" for pid in pids)
    return (
        f"GPU {gpus}: no process is listed for {size}. Of your processes, these have the driver open and are in no "
        f"list: {names}. End those that you do not need."
    )


def owners(snapshot: Snapshot, here: Collection[int] = (), *, call: bool = False) -> Mapping[int, Owner]:
    """Find whose processes are, as a table names them; none where this machine's processes cannot be read in 1.5 s.

    Args:
        snapshot: the GPUs with the processes.
        here: further pids, of processes that report of themselves or make calls, whether they hold memory or not.
        call: whether this process is an isolated call: "this notebook" is then the one that made it.
    """
    caller = process_kind.caller if call else ""

    def find() -> Mapping[int, Owner]:
        owners = Owners(calling_pid() if call else None, this=f"this {caller}" if caller else "")
        return _read_own_board().facts(owners, snapshot, {}, here).owners

    return run_within(1.5, find) or {}


def _read_own_board() -> BoardContents:
    """Read what is posted on the board; nothing where it cannot be used."""
    with contextlib.suppress(MonitorError), BoardDirectory() as place:
        return read_board(ReportFiles(place))
    return BoardContents()


class Watcher:
    """A watcher of the GPUs, which raises `MonitorError` as `Watch.read` does. Not thread-safe.

    Args:
        watch: the board; None opens one.
        kernel: the pid that is "this notebook"; 0 is none.
        report: makes this kernel's own report; None leaves that out.
    """

    def __init__(
        self, watch: Watch | None = None, *, kernel: int = 0, report: Callable[[Snapshot], Report] | None = None
    ) -> None:
        self.watch = watch or Watch()
        self._report = report
        self._owners = Owners(kernel, trust=PID_TRUSTED_FOR)
        self._used_since: float | None = None
        self._before: tuple[object, ...] = ()

    def read(self, notebooks: Mapping[int, Notebook] | None = None) -> Table:
        """Return the table as it is now.

        Args:
            notebooks: what a server has of its kernels, by pid.
        """
        return self._table(self.watch.read(), read_board(self.watch.report_files), notebooks or {})

    def read_if_changed(self, notebooks: Mapping[int, Notebook]) -> Table | None:
        """Return the table; None while board, reports and notebooks are unchanged, which takes microseconds."""
        before, self._before = self._before, ()  # a failure is news, and so is what follows it
        reading, found = self.watch.read(), read_board(self.watch.report_files)
        now = _identity(reading), found, notebooks
        table = self._table(reading, found, notebooks) if now != before else None
        self._before = now
        return table

    def close(self) -> None:
        """Close the board."""
        self.watch.close()

    def _table(self, reading: Reading, found: BoardContents, notebooks: Mapping[int, Notebook]) -> Table:
        seen = reading.snapshot
        facts = replace(found.facts(self._owners, seen, notebooks), own=self._own_report(seen))
        return replace(make_table(seen, facts), stale_since=reading.stale_since, every=reading.every)

    def _own_report(self, snapshot: Snapshot) -> Report | None:
        """Make this kernel's report, with the time since when the driver's lists should have it."""
        if self._report is None:
            return None
        own = self._report(snapshot)
        if self._used_since is None and any(use.least_held for use in own.uses):
            self._used_since = snapshot.time
        return replace(own, used_since=self._used_since)


def failure(error: Exception, broken: str, time: float = 0.0) -> Table:
    """Make a table of what went wrong, for a view that must go on.

    Args:
        error: any exception of `Watcher.read` or `Watcher.read_if_changed`.
        broken: the text for a fault of this package.
        time: when the GPUs were last read, in seconds since the epoch; 0 when they never were.
    """
    return Table(error=str(error) if isinstance(error, MonitorError) else broken, time=time)


def _identity(reading: Reading) -> tuple[object, ...]:
    """Return the values by which a reading differs from the one before."""
    # Where nothing was published, the snapshot may say why.
    return reading.sequence, reading.snapshot if reading.sequence == 0 else None, reading.stale_since
