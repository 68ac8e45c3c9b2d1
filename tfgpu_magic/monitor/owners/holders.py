"""Reads of the processes that a driver lists whose they are, when they began and which cgroup they are in.

The collector does so once for all views. Of a process it reads stat, status and cgroup; only of the user's own also
whether it has the driver open.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.model.snapshot import Process
from tfgpu_magic.monitor.owners.cgroups import named
from tfgpu_magic.monitor.owners.pids import began, user, whose
from tfgpu_magic.probe import within

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread

    from tfgpu_magic.model.snapshot import Snapshot

TRUSTED_FOR = 10.0
"""Seconds in which no pid is reused by another process on the same GPU."""
PROCESS_TIMEOUT = 0.5
"""Seconds to wait for what is read of a process; it takes a fraction of a millisecond."""


class HolderFacts(NamedTuple):
    """What is read of a process; the fields of a `Process`."""

    uid: int | None = None
    began: int | None = None
    cgroup: str | None = None


NOBODY = HolderFacts()
"""What is known of a pid that means no process here, or one that is hidden."""


def holder(pid: int) -> HolderFacts:
    """Return what is known of a process of any user."""
    start = began(pid)
    try:
        found = HolderFacts(user(pid), start, named(Path(f"/proc/{pid}/cgroup").read_text(errors="replace")))
    except (OSError, ValueError, IndexError):
        return NOBODY
    return found if start is not None and began(pid) == start else NOBODY  # else the pid was given anew meanwhile


def users_holder(pid: int) -> HolderFacts:
    """Return the same for a collector of a user, in whose container a driver may list the pids of another namespace."""
    return NOBODY if whose(pid) == "gone" else holder(pid)


class Holders:
    """What was read of processes, by pid.

    Args:
        read: reads a process; a driver may hold it, and its files with it.
    """

    def __init__(self, read: Callable[[int], HolderFacts]) -> None:
        self._read = read
        self._known: dict[int, tuple[float, HolderFacts]] = {}
        self._hanging: dict[int, list[Thread]] = {}

    def named(self, snapshot: Snapshot, now: float) -> Snapshot:
        """Return a reading of the lists with what is known of its processes.

        Args:
            snapshot: the reading.
            now: on the monotonic clock.
        """
        before, self._known = self._known, {}
        for pid in {row.pid for row in snapshot.processes}:
            known = before.get(pid)
            self._known[pid] = known if known and now - known[0] < TRUSTED_FOR else (now, self._find(pid))
        return snapshot._replace(processes=tuple([self._row(row) for row in snapshot.processes]))

    def _row(self, row: Process) -> Process:
        uid, began, cgroup = self._known[row.pid][1]
        return Process(row.gpu, row.pid, row.kind, row.held, row.utilisation, uid, began, row.unused, cgroup)

    def _find(self, pid: int) -> HolderFacts:
        hanging = self._hanging.setdefault(pid, [])
        found = within(PROCESS_TIMEOUT, partial(self._read, pid), hanging)
        if not hanging:
            del self._hanging[pid]
        return found or NOBODY
