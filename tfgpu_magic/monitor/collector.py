"""The one process of a user that asks NVML, for everybody who looks: `python -m tfgpu_magic.monitor.collector`.

It writes to the board, and leaves when nobody looks any more. A lock makes it the only one: whoever comes second leaves
at once. An NVML call can hang for good; then only this process hangs, readers see that it is missed, and an alarm ends
it where it can be ended. Where it cannot, in the driver's uninterruptible sleep, it keeps the lock, and no other
process goes to hang beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.board import BOARD, LOCK, Writer
from tfgpu_magic.monitor.carry import carry
from tfgpu_magic.monitor.place import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.monitor.nvml import Reader
    from tfgpu_magic.monitor.snapshot import Snapshot

LINGER = 30.0
"""Seconds that it stays after the last look."""
PATIENCE = 60.0
"""Seconds that a reading may take: a driver without persistence takes many to start, on many GPUs."""

START = struct.Struct("<dQ")
"""How the lock's file begins: when a collector was last started (the monotonic clock), and how often in vain since."""
REASON = 300
"""Bytes after that, which say why it was in vain."""
PACE = struct.Struct("<dd")
"""What follows: when somebody last said how often to read (the monotonic clock), and how often, in seconds."""
PACE_AT = START.size + REASON
PACE_HOLDS = 5.0
"""Seconds in which one who wants it less often changes nothing; all who look say it again and again."""
LIBRARIES = "TFGPU_MAGIC_LIBRARIES"
"""The variable with the folders where the driver's library may be, for systems that do not find it by themselves."""
NAME = "tfgpu-collector"
"""What the process is called, also when it has ended and nobody has waited for it: 15 characters are kept."""

_EVERY = {"memory": 1.0, "lists": 2.0, "graphics": 10.0}
"""Seconds between two readings of a kind where a reading each second is wanted; a kind includes those before it."""
_SHARE = {"memory": 0.005, "lists": 0.01, "graphics": 0.005}
"""What part of the time each kind may spend in NVML: 2% in all, unless that would hide figures for too long."""
_LONGEST = {"memory": 10.0, "lists": 10.0, "graphics": 60.0}
"""Seconds between two readings at the most, however dear they are."""
_MOST = 0.25
"""What part of the time readings may take that are dearer still."""
MOVED = 16 * 2**20
"""Bytes by which what is in use moves without the lists being read for it."""
_PAUSE = 0.5  # seconds between two looks whether a GPU that sleeps was woken, or a driver that fails is due
_RETRY, _RETRY_ABSENT = 5.0, 60.0
"""Seconds between two attempts at the most, while the driver fails, and while there was never one."""


class Schedule:
    """When to read what: as often as is wanted, and as rarely as keeps NVML's part of the time within its bounds.

    Attributes:
        pace: seconds between two readings that those who look want; 1 at the least.
    """

    def __init__(self) -> None:
        self.pace = 1.0
        self._begun = dict.fromkeys(_EVERY, float("-inf"))
        self._may = dict.fromkeys(_EVERY, 0.0)
        self._mean: dict[str, float] = {}
        self._failures = 0
        self._worked = False

    def kind(self, now: float) -> str | None:
        """Return the dearest kind that is due, or None."""
        due = [kind for kind in _EVERY if self._due(kind) <= now]
        return due[-1] if due else None

    def may(self, kind: str, now: float) -> bool:
        """Tell whether NVML's part of the time lets a kind be read before it is due."""
        return self._may[kind] <= now

    def next(self) -> float:
        """Return when something will be due."""
        return min(map(self._due, _EVERY))

    def _due(self, kind: str) -> float:
        return max(self._may[kind], self._begun[kind] + _EVERY[kind] * self.pace)

    def done(
        self,
        kind: str,
        start: float,
        cost: float,
        *,
        opening: bool = False,
        failed: bool = False,
        absent: bool = False,
    ) -> None:
        """Plan on from a reading.

        Args:
            kind: what was read.
            start: when it began, on the clock that `kind` is asked by.
            cost: seconds that it took.
            opening: it started NVML too, which takes seconds and is done once: the cost is not counted.
            failed: there was no driver to read; all kinds are tried again, soon and then more rarely.
            absent: nor is there any on this machine.
        """
        self._failures = self._failures + 1 if failed else 0
        self._worked = self._worked or not failed
        if failed:
            longest = _RETRY_ABSENT if absent and not self._worked else _RETRY
            pause = max(min(longest, 2.0 ** min(self._failures - 1, 10)), cost / sum(_SHARE.values()))
            self._begun = dict.fromkeys(_EVERY, float("-inf"))
            self._may = dict.fromkeys(_EVERY, start + pause)
            return
        # What a reading costs is a mean of the last few: the sum of the pauses is the same, and a single slow reading
        # does not take the next ones out of sight for minutes. Nor do several in a row: there is a longest pause.
        mean = 0.0
        if not opening:
            mean = self._mean.setdefault(kind, cost)
            self._mean[kind] = mean = mean + (cost - mean) / 4
        for included in _EVERY:  # a dear reading is a cheaper one too, and tells nothing of what that costs
            self._begun[included] = start
            if included == kind:
                self._may[kind] = max(self._may[kind], start + min(mean / _SHARE[kind], _LONGEST[kind]))
                break
        if not opening:
            self._may = {each: max(may, start + cost / _MOST) for each, may in self._may.items()}


def collect(place: Place, *, linger: float = LINGER, patience: float = PATIENCE) -> bool:
    """Be the collector, until nobody looks or the board is gone.

    Args:
        place: where the board is.
        linger: seconds to stay after the last look.
        patience: seconds after which a hanging reading ends this process, by SIGALRM.

    Returns:
        Whether this process was the collector; False if there is another.

    Raises:
        MonitorError: the board cannot be made.
    """
    lock = _lock(place)
    if lock is None:
        return False
    try:
        writer = Writer(place)
        _write(place, lock, writer, linger=linger, patience=patience)
        writer.close()
    except MonitorError as error:
        # The lock's page is there since its first byte, so that this can be written on a full disk.
        with contextlib.suppress(OSError):
            os.pwrite(lock, str(error).encode()[:REASON].ljust(REASON, b"\0"), START.size)
        raise
    finally:
        os.close(lock)
    return True


def _lock(place: Place) -> int | None:
    """Take the lock, unless another process has it for longer than a reader needs to see whether anybody has."""
    for _ in range(20):
        fd = place.open(LOCK, os.O_RDWR | os.O_CREAT)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if place.holds(LOCK, fd):
                return fd
        os.close(fd)
        time.sleep(0.02)
    return None


def _write(place: Place, lock: int, writer: Writer, *, linger: float, patience: float) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    readings = _Readings(lock, writer, patience)
    looked, stamp = time.monotonic(), 0
    while writer.is_there() and place.holds(LOCK, lock):
        now = time.monotonic()
        if (touched := os.fstat(lock).st_mtime_ns) != stamp:
            looked, stamp = now, touched
        if now - looked > linger:
            if place.simulated:  # the machine will not come again
                place.remove(BOARD)
                place.remove(LOCK)
            return
        with contextlib.suppress(OSError):  # a full disk: readers see that we are missed, until there is room
            readings.go_on(now)
        time.sleep(readings.pause())


class _Readings:
    """What is read and published, from one look at the clock to the next."""

    def __init__(self, lock: int, writer: Writer, patience: float) -> None:
        from tfgpu_magic.monitor.nap import Nap
        from tfgpu_magic.monitor.nvml import Reader  # here: a process that only starts a collector needs no pynvml

        folders = [folder for folder in os.environ.get(LIBRARIES, "").split(":") if folder]
        self._reader, self._schedule, self._nap = Reader(folders), Schedule(), Nap()
        self._lock, self._writer, self._patience = lock, writer, patience
        self._snapshot: Snapshot | None = None
        self._listed: dict[str, int | None] = {}
        self._opened = self._succeeded = False

    def go_on(self, now: float) -> None:
        """Read what is due, or say that nothing is.

        Raises:
            OSError: it could not be published.
        """
        self._schedule.pace = _pace(self._lock)
        if not self._opened and self._nap.asleep():
            self._sleep()
        elif self._nap.goes_on(now):
            self._writer.beat()
        elif (kind := self._schedule.kind(now)) is not None:
            self._read(kind, now)
        else:
            self._writer.beat(self._schedule.next())

    def pause(self) -> float:
        """Return how many seconds there is nothing to do."""
        return max(0.0, min(self._schedule.next() - time.monotonic(), 1.0)) if self._opened else _PAUSE

    def _sleep(self) -> None:
        from tfgpu_magic.monitor.nap import ASLEEP
        from tfgpu_magic.monitor.snapshot import Snapshot

        if self._snapshot is not None and self._snapshot.error == ASLEEP:
            self._writer.beat()
            return
        self._snapshot = Snapshot(time=time.time(), error=ASLEEP)
        self._writer.publish(self._snapshot)

    def _read(self, kind: str, now: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._patience)
        snapshot = read(self._reader, self._snapshot, kind)
        if kind == "memory" and _moved(snapshot, self._listed) and self._schedule.may("lists", now):
            kind, snapshot = "lists", read(self._reader, snapshot, "lists")
        if kind != "memory":
            self._listed = {gpu.label: gpu.used for gpu in snapshot.gpus}
        signal.setitimer(signal.ITIMER_REAL, 0)
        opening, self._opened, cost = not self._opened, snapshot.error is None, time.monotonic() - now
        failed = not self._opened
        self._schedule.done(kind, now, cost, opening=opening, failed=failed, absent=snapshot.absent)
        self._snapshot = snapshot
        self._writer.publish(snapshot, self._schedule.next())
        if self._nap.begins(snapshot, now):
            self._reader.close()
            self._opened = False
        if not self._succeeded:
            os.pwrite(self._lock, bytes(8 + REASON), START.size - 8)
            self._succeeded = True


def _pace(lock: int) -> float:
    """Read how often those who look want to see something new, in seconds."""
    said = os.pread(lock, PACE.size, PACE_AT)
    return max(1.0, PACE.unpack(said)[1]) if len(said) == PACE.size else 1.0


def _moved(snapshot: Snapshot, listed: Mapping[str, int | None]) -> bool:
    """Tell whether a GPU has more or less in use than when its processes were listed, so that they must be listed anew.

    What has come would look like somebody's whom the driver does not list.
    """
    pairs = ((gpu.used, listed.get(gpu.label)) for gpu in snapshot.gpus)
    return any(now is not None and then is not None and abs(now - then) > MOVED for now, then in pairs)


def read(reader: Reader, before: Snapshot | None, kind: str) -> Snapshot:
    """Ask NVML for a kind of reading, and complete it from the one before."""
    processes, graphics = kind != "memory", kind == "graphics"
    fresh = reader.read(processes=processes, graphics=graphics)
    return carry(fresh, before, processes=processes, graphics=graphics)


def main(linger: float = LINGER, patience: float = PATIENCE) -> None:
    """Be the collector, or leave quietly if there is one."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(NAME)
    with contextlib.suppress(MonitorError), Place() as place:  # readers find the reason for themselves
        collect(place, linger=linger, patience=patience)


if __name__ == "__main__":
    main()
