"""The one process of a user that asks the driver, for all viewers: `python -m tfgpu_magic.monitor.collector`.

It writes to the board, and ends when there are no viewers any more. A lock makes it the only one: a second collector
ends at once. One that cannot read the GPUs ends after a while too, so that the next viewer's may try: the first viewer
may lack the library. A call into a driver can hang for good; then only this process hangs, readers find that it is
missing, and an alarm ends it where it can be ended. Where it cannot, in the driver's uninterruptible sleep, it keeps
the lock, and no other process hangs beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.snapshot import Snapshot
from tfgpu_magic.monitor.board import lockfile
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.lockfile import LIBRARIES, LINGER, PROCESS_NAME, READING_TIMEOUT
from tfgpu_magic.monitor.board.report_files import ReportFiles
from tfgpu_magic.monitor.board.snapshot_file import BOARD, LOCK, Writer
from tfgpu_magic.monitor.board.unused import Ledger
from tfgpu_magic.monitor.driver.nvml import NvmlReader
from tfgpu_magic.monitor.driver.readings import completed
from tfgpu_magic.monitor.driver.schedule import ASLEEP, DriverSleep, Schedule, WantedIntervals
from tfgpu_magic.monitor.owners.holders import HolderFacts, Holders, users_holder

if TYPE_CHECKING:
    from collections.abc import Iterator

BLIND_FOR, MOST_DOUBLINGS = 20.0, 4
"""Seconds without the GPUs after which a collector ends, and how often they double: five minutes in the end."""
LISTS_WHEN_MOVED = 16 * 2**20
"""The largest change of the bytes in use that does not cause the lists to be read again."""
_PAUSE = 0.5  # seconds between two checks whether a sleeping GPU was woken, or a driver that fails is due


class Duty(NamedTuple):
    """How to be a collector.

    Attributes:
        linger: seconds to stay after the last viewer's look.
        patience: seconds after which a hanging reading ends this process, by SIGALRM.
        read: reads a process that a driver lists.
        quiet: returns since when kernels run no cell, by pid, as they report in a directory.
        listed: makes what is given each reading of the lists when it has been published, for a directory and what an
            earlier collector has published last there.
    """

    linger: float = LINGER
    patience: float = READING_TIMEOUT
    read: Callable[[int], HolderFacts] = users_holder
    quiet: Callable[[BoardDirectory], Mapping[int, float]] = lambda place: _quiet(place)
    listed: Callable[[BoardDirectory, Snapshot | None], Callable[[Snapshot], object]] = lambda *_: lambda _: None


def collect(place: BoardDirectory, duty: Duty) -> bool:
    """Be the collector, until there are no viewers or the board is gone.

    Args:
        place: where the board is.
        duty: how.

    Returns:
        Whether this process was the collector; False if there is another.

    Raises:
        MonitorError: the board cannot be made.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    lock = _lock(place)
    if lock is None:
        return False
    try:
        writer = Writer(place)
        _write(place, lock, writer, duty)
        writer.close()
    except MonitorError as error:
        with contextlib.suppress(OSError):
            lockfile.fail(lock, str(error))
        raise
    finally:
        os.close(lock)
    return True


def _lock(place: BoardDirectory) -> int | None:
    """Take the lock, unless another process holds it for longer than a reader does to see whether it is held."""
    for _ in range(20):
        fd = place.open(LOCK, os.O_RDWR | os.O_CREAT)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if place.holds(LOCK, fd):
                return fd
        os.close(fd)
        time.sleep(0.02)
    return None


def _write(place: BoardDirectory, lock: int, writer: Writer, duty: Duty) -> None:
    readings = _Readings(place, lock, writer, duty)
    looked, stamp = time.monotonic(), 0
    while writer.is_there() and place.holds(LOCK, lock) and not readings.blind(time.monotonic()):
        now = time.monotonic()
        if (touched := os.fstat(lock).st_mtime_ns) != stamp:
            looked, stamp = now, touched
        if now - looked > duty.linger:
            if place.simulated:  # this machine will not come back
                for name in (BOARD, LOCK):
                    place.remove(name)
            return
        with contextlib.suppress(OSError):  # a full disk: readers find the writer missing until there is room
            readings.go_on(now)
        time.sleep(readings.pause())


class _Readings:
    """The readings and their publication, one step at a time."""

    def __init__(self, place: BoardDirectory, lock: int, writer: Writer, duty: Duty) -> None:
        folders = [folder for folder in os.environ.get(LIBRARIES, "").split(":") if folder]
        self._reader, self._schedule, self._driver_sleep = NvmlReader(folders), Schedule(), DriverSleep()
        self._lock, self._writer, self._patience = lock, writer, duty.patience
        self._ledger, self._holders = Ledger(writer.past), Holders(duty.read)
        self._quiet, self._count = partial(duty.quiet, place), duty.listed(place, writer.past)
        self._snapshot: Snapshot | None = None
        self._listed: dict[str, int | None] = {}
        self._opened = self._succeeded = False
        self._saw_at = time.monotonic()
        self._failures = max(0, lockfile.started(lock)[1] - 1)  # without this start

    def go_on(self, now: float) -> None:
        """Read and publish what is due, or beat.

        Raises:
            OSError: it could not be published.
        """
        self._schedule.wanted = self._wanted()
        if not self._opened and self._driver_sleep.asleep():
            self._sleep()
        elif self._driver_sleep.goes_on(now):
            self._writer.beat(self._schedule.next())
        elif (kind := self._schedule.kind(now)) is not None:
            self._read(kind, now)
        else:
            self._writer.beat(self._schedule.next())

    def blind(self, now: float) -> bool:
        """Tell whether the GPUs could not be read for long; the longer, the more collectors in a row could not."""
        if self._snapshot is None or self._snapshot.error in (None, ASLEEP):
            self._saw_at = now
        return now - self._saw_at > BLIND_FOR * 2.0 ** min(self._failures, MOST_DOUBLINGS)

    def pause(self) -> float:
        """Return for how many seconds there is nothing to do."""
        return max(0.0, min(self._schedule.next() - time.monotonic(), 1.0)) if self._opened else _PAUSE

    def _wanted(self) -> WantedIntervals:
        """Return what the viewers want; lists too, where what is used of a GPU follows from its processes alone."""
        wanted = lockfile.wanted(self._lock)
        unified = self._snapshot is not None and any(gpu.unified for gpu in self._snapshot.gpus)
        return wanted._replace(lists=2.0 * wanted.memory) if unified else wanted

    def _sleep(self) -> None:
        if self._snapshot is not None and self._snapshot.error == ASLEEP:
            self._writer.beat()
            return
        self._snapshot = Snapshot(time=time.time(), error=ASLEEP)
        self._writer.publish(self._snapshot)

    def _read(self, kind: str, now: float) -> None:
        with _alarm(self._patience):
            snapshot = read(self._reader, self._snapshot, kind)
            if kind == "memory" and _moved(snapshot, self._listed) and self._schedule.may_list(now):
                kind, snapshot = "lists", read(self._reader, snapshot, "lists")
        cost = time.monotonic() - now  # the driver's: /proc is not its time
        if kind != "memory":
            self._listed = {gpu.label: gpu.used for gpu in snapshot.gpus}
            snapshot = self._ledger.step(self._holders.named(snapshot, now), self._quiet)
        opening, self._opened = not self._opened, snapshot.error is None
        failed = not self._opened
        self._schedule.done(kind, now, cost, opening=opening, failed=failed, absent=snapshot.absent)
        self._snapshot = snapshot
        self._writer.publish(snapshot, self._schedule.next())
        if kind != "memory":
            with contextlib.suppress(OSError, MonitorError):  # as of the board: when there is room again
                self._count(snapshot)
        if kind != "memory" and self._driver_sleep.begins(snapshot, now):  # an old list lacks newer processes
            with _alarm(self._patience):
                self._reader.close()
            self._opened = False
        if self._opened and not self._succeeded:
            lockfile.succeed(self._lock)
            self._succeeded = True


def _quiet(place: BoardDirectory) -> dict[int, float]:
    """Return since when kernels run no cell, by pid, as they report."""
    idle = [one for one in ReportFiles(place).read() if one.busy is False]
    return {one.pid: one.active for one in idle if one.active is not None}


@contextlib.contextmanager
def _alarm(patience: float) -> Iterator[None]:
    """End this process if the block, which calls a driver, takes longer."""
    signal.setitimer(signal.ITIMER_REAL, patience)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _moved(snapshot: Snapshot, listed: Mapping[str, int | None]) -> bool:
    """Tell whether a GPU's use has changed since its processes were listed, so that they must be listed again.

    Otherwise new memory would look like that of a process that the driver does not list.
    """
    pairs = ((gpu.used, listed.get(gpu.label)) for gpu in snapshot.gpus)
    return any(now is not None and then is not None and abs(now - then) > LISTS_WHEN_MOVED for now, then in pairs)


def read(reader: NvmlReader, before: Snapshot | None, kind: str) -> Snapshot:
    """Ask the driver for a kind of reading, and complete it from the one before."""
    processes, graphics = kind != "memory", kind == "graphics"
    fresh = reader.read(processes=processes, graphics=graphics)
    return completed(fresh, before, processes=processes, graphics=graphics)


def main(linger: float = LINGER, patience: float = READING_TIMEOUT) -> None:
    """Be the collector, or return quietly if there is one."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(PROCESS_NAME)
    with contextlib.suppress(MonitorError), BoardDirectory() as place:  # readers find the reason for themselves
        collect(place, Duty(linger, patience))


if __name__ == "__main__":
    main()
