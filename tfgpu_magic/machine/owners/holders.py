"""Reads of the processes that a driver lists whose they are, when they began and which cgroup they are in.

The collector does so once for all views. Of a process it reads stat, status, cgroup and uid_map; only of the user's
own also whether it has the driver open.
"""

from __future__ import annotations

import contextlib
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.ground.snapshot import Process
from tfgpu_magic.machine.owners.cgroups import cgroup_name
from tfgpu_magic.machine.owners.pids import ownership, read_text, start_time
from tfgpu_magic.machine.owners.users import effective_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tfgpu_magic.ground.snapshot import Snapshot

TRUSTED_FOR = 10.0
"""Seconds in which no pid is reused by another process on the same GPU."""
PROCESS_TIMEOUT = 0.5
"""Seconds to wait for what is read of a process; it takes a tenth of a millisecond."""


class HolderFacts(NamedTuple):
    """What is read of a process; the fields of a `Process`."""

    uid: int | None = None
    began: int | None = None
    cgroup: str | None = None


NOBODY = HolderFacts()
"""What is known of a pid that means no process here, or one that is hidden."""


def read_holder(pid: int) -> HolderFacts:
    """Return what is known of a process of any user; one in a user's container is that user's."""
    start = start_time(pid)
    try:
        found = HolderFacts(effective_user(pid), start, cgroup_name(read_text(pid, "cgroup")))
    except (OSError, ValueError, IndexError):
        return NOBODY
    return found if start is not None and start_time(pid) == start else NOBODY  # else the pid was given anew meanwhile


def read_users_holder(pid: int) -> HolderFacts:
    """Return the same for a collector of a user, in whose container a driver may list the pids of another namespace."""
    return NOBODY if ownership(pid) == "gone" else read_holder(pid)


class Holders:
    """What was read of processes, by pid.

    Args:
        read: reads a process; a driver may hold it, and its files with it.
    """

    def __init__(self, read: Callable[[int], HolderFacts]) -> None:
        self._read = read
        self._known: dict[int, tuple[float, HolderFacts]] = {}
        self._hanging: dict[int, Thread] = {}

    def complete(self, snapshot: Snapshot, now: float) -> Snapshot:
        """Return a reading of the lists with what is known of its processes.

        Args:
            snapshot: the reading.
            now: on the monotonic clock.
        """
        pids = {row.pid for row in snapshot.processes}
        known = {pid: one for pid, one in self._known.items() if pid in pids and now - one[0] < TRUSTED_FOR}
        read = self._read_all(pids - known.keys())
        self._known = {pid: known.get(pid) or (now, read.get(pid, NOBODY)) for pid in pids}
        return snapshot._replace(processes=tuple([self._row(row) for row in snapshot.processes]))

    def _row(self, row: Process) -> Process:
        uid, began, cgroup = self._known[row.pid][1]
        return Process(row.gpu, row.pid, row.kind, row.held, row.utilisation, uid, began, row.unused, cgroup)

    def _read_all(self, pids: Iterable[int]) -> dict[int, HolderFacts]:
        """Read processes on one thread, and where one does not let itself be read, those after it on another."""
        self._hanging = {pid: thread for pid, thread in self._hanging.items() if thread.is_alive()}
        waiting, found = [pid for pid in pids if pid not in self._hanging], dict[int, HolderFacts]()
        while waiting:
            done: list[HolderFacts] = []
            thread = Thread(target=self._read_each, args=(waiting, done), daemon=True)
            with contextlib.suppress(RuntimeError):  # there is none to be had
                thread.start()
            before = -1
            while thread.is_alive() and len(done) > before:
                before = len(done)
                thread.join(PROCESS_TIMEOUT)
            read = tuple(done)
            found.update(zip(waiting, read, strict=False))
            rest = waiting[len(read) + 1 :]
            if thread.is_alive() and len(read) < len(waiting):
                self._hanging[waiting[len(read)]] = thread
            waiting.clear()  # that thread reads no other, when it goes on
            waiting = rest
        return found

    def _read_each(self, pids: Iterable[int], done: list[HolderFacts]) -> None:
        for pid in pids:
            done.append(self._read(pid))  # noqa: PERF401  one by one: who waits counts them
