"""Lets a collector that can read the GPUs replace one that cannot: the first viewer may lack the library.

A viewer that gets nothing but an error starts a collector of its own now and then. That one reads the driver before it
asks the other to end: where there is no driver, a process comes and goes, and nothing else happens.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING

from tfgpu_magic.monitor import lockfile
from tfgpu_magic.monitor.board import LOCK, Reader
from tfgpu_magic.monitor.driver_sleep import ASLEEP

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgpu_magic.monitor.board import Look
    from tfgpu_magic.monitor.directory import BoardDirectory
    from tfgpu_magic.monitor.snapshot import Snapshot

BLIND_FOR = 3.0
"""Seconds of an error after which a viewer tries."""
FIRST_RETRY, LONGEST_RETRY = 60.0, 960.0
"""Seconds between a viewer's first two tries, and between two at most. Each pause is twice the one before."""
LEAVE_TIMEOUT = 5.0
"""Seconds in which a collector ends after it was asked to."""


class Doubt:
    """The decision when a viewer tries whether its own collector can read more. Times are the monotonic clock's."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._next, self._pause = 0.0, FIRST_RETRY

    def tries(self, seen: Look, now: float) -> bool:
        """Tell after a look whether it is time to try."""
        if seen.age is None or seen.stale_since is not None:
            return False
        if not blind(seen.snapshot):
            self._since, self._next, self._pause = None, 0.0, FIRST_RETRY
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < BLIND_FOR or now < self._next:
            return False
        self._next, self._pause = now + self._pause, min(LONGEST_RETRY, 2 * self._pause)
        return True


def blind(snapshot: Snapshot) -> bool:
    """Tell whether a collector could not read the GPUs, where another one might."""
    return snapshot.error not in (None, ASLEEP)


def must_leave(lock: int) -> bool:
    """Tell whether a collector must end now, since one that can read the GPUs asks it to."""
    return 0 <= time.monotonic() - lockfile.asked_to_leave(lock) < LEAVE_TIMEOUT


def take_over(place: BoardDirectory, sees: Callable[[], bool]) -> int | None:
    """Take the collector's place, if it cannot read the GPUs.

    Args:
        place: where the board is.
        sees: tells whether this process can read the GPUs.

    Returns:
        The lock's descriptor; None where the collector stays.
    """
    reader = Reader(place)
    seen = reader.look()
    reader.close()
    if seen.age is None or not blind(seen.snapshot):
        return None
    lock = place.open(LOCK, os.O_RDWR | os.O_CREAT)
    if _alone(lock) and sees() and _leaves(lock) and place.holds(LOCK, lock):
        fcntl.lockf(lock, fcntl.LOCK_UN)
        return lock
    os.close(lock)
    return None


def _alone(lock: int) -> bool:
    """Tell whether no other process tries: should the driver hang, only this one hangs."""
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # independent of the collector's lock, which is flock's
    except OSError:
        return False
    return True


def _leaves(lock: int) -> bool:
    """Ask the collector to end, and tell whether it did, so that this process holds its lock."""
    lockfile.start(lock, 0)  # so that no viewer starts another one in between
    lockfile.ask_to_leave(lock)
    end = time.monotonic() + LEAVE_TIMEOUT
    while time.monotonic() < end:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False
