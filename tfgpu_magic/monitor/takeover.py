"""How a collector that cannot read the GPUs gives way to one that can: whoever looked first may lack the library.

One who looks and sees nothing but an error starts a collector of its own now and then. That one asks the driver before
it asks the other to leave: where there is no driver, a process comes and goes, and nothing else happens.
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

BLIND = 3.0
"""Seconds for which an error is seen before one who looks tries."""
AGAIN, RARELY = 60.0, 960.0
"""Seconds between two of the same one's tries: the first two, and at most. Each pause is twice the one before."""
LEAVES = 5.0
"""Seconds in which a collector leaves that is asked to."""


class Doubt:
    """Decides when one who looks tries whether a collector of its own sees more. Times are the monotonic clock's."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._next, self._pause = 0.0, AGAIN

    def tries(self, seen: Look, now: float) -> bool:
        """Tell after a look whether it is time to try."""
        if seen.age is None or seen.stale_since is not None:
            return False
        if not blind(seen.snapshot):
            self._since, self._next, self._pause = None, 0.0, AGAIN
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < BLIND or now < self._next:
            return False
        self._next, self._pause = now + self._pause, min(RARELY, 2 * self._pause)
        return True


def blind(snapshot: Snapshot) -> bool:
    """Tell whether a collector could not read the GPUs, where another one might."""
    return snapshot.error not in (None, ASLEEP)


def asked(lock: int) -> bool:
    """Tell a collector whether it is asked to leave, now, by one that can read the GPUs."""
    return 0 <= time.monotonic() - lockfile.asked_to_leave(lock) < LEAVES


def take_over(place: BoardDirectory, sees: Callable[[], bool]) -> int | None:
    """Take the collector's place, if that one is blind.

    Args:
        place: where the board is.
        sees: tells whether this process can read the GPUs.

    Returns:
        The lock; None where the collector stays.
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
    """Tell whether no other process tries: should the driver hang, none goes to hang beside it."""
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which is no concern of the collector's, whose is flock
    except OSError:
        return False
    return True


def _leaves(lock: int) -> bool:
    """Ask the collector to leave, and tell whether it did, and its lock is ours."""
    lockfile.start(lock, 0)  # so that nobody who looks starts another one in between
    lockfile.ask_to_leave(lock)
    end = time.monotonic() + LEAVES
    while time.monotonic() < end:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False
