"""What the collector and its starters share: names, timeouts, and the lock file's content beside the lock.

That is when collectors were started, and what viewers want.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.board.snapshot_file import LOCK
from tfgpu_magic.monitor.driver.schedule import WantedIntervals

if TYPE_CHECKING:
    from tfgpu_magic.monitor.board.directory import BoardDirectory

LINGER = 30.0
"""Seconds that the collector stays after the last look."""
READING_TIMEOUT = 60.0
"""Seconds that a reading may take: a driver without persistence takes many to start, on many GPUs."""

LIBRARIES = "TFGPU_MAGIC_LIBRARIES"
"""Folders in which what asks the driver looks for its library, too; views set it to `LD_LIBRARY_PATH`."""
PROCESS_NAME = "tfgpu-collector"
"""The process's name, also as a zombie; Linux keeps 15 characters."""

WANT_HOLDS_FOR = 5.0
"""Seconds for which a viewer that wants a thing less often changes nothing; all viewers write their wish repeatedly."""

_FIRST, _LONGEST = 1.0, 15.0  # seconds between two attempts to start a collector
_START = struct.Struct("<dQ")  # when a collector was last started (monotonic clock), and the failed starts since
_REASON = 300  # bytes: why it failed
_WANTED = struct.Struct("<dd")  # when a viewer wrote this (monotonic clock), and the interval in seconds
_REASON_AT = _START.size
_MEMORY_AT = _REASON_AT + _REASON
_LISTS_AT = _MEMORY_AT + _WANTED.size


def begin(place: BoardDirectory, fd: int) -> bool:
    """Tell whether this process is to start a collector now: none holds the lock, and none is on its way.

    The lock is held for microseconds, and released before the file is closed: a process that is forked meanwhile has
    the descriptor too, and would keep the lock.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        if not place.holds(LOCK, fd):
            return False
        begun, failures = started(fd)
        if 0 <= time.monotonic() - begun < min(_LONGEST, _FIRST * 2.0 ** min(failures, 10)):
            return False
        start(fd, failures + 1)
        return True
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def want(fd: int, wanted: WantedIntervals) -> None:
    """Write what is wanted, unless a viewer that wants it more often has lately written that."""
    for at, every in ((_MEMORY_AT, wanted.memory), (_LISTS_AT, wanted.lists)):
        written, before = _WANTED.unpack(_read(fd, _WANTED, at))
        now = time.monotonic()
        if every <= before or not 0 <= now - written < WANT_HOLDS_FOR:
            os.pwrite(fd, _WANTED.pack(now, every), at)


def wanted(fd: int) -> WantedIntervals:
    """Read what the viewers want."""
    memory, lists = (_WANTED.unpack(_read(fd, _WANTED, at))[1] for at in (_MEMORY_AT, _LISTS_AT))
    memory = max(1.0, memory)
    return WantedIntervals(memory, max(2.0 * memory, lists))


def started(fd: int) -> tuple[float, int]:
    """Return when a collector was last started, on the monotonic clock, and how many starts have failed since."""
    at, failures = _START.unpack(_read(fd, _START, 0))
    return at, failures


def start(fd: int, failures: int) -> None:
    """Write that a collector is started now, after so many failed starts."""
    os.pwrite(fd, _START.pack(time.monotonic(), failures), 0)


def reason(fd: int) -> str:
    """Return why starts failed; an empty text where no collector has left a reason."""
    return os.pread(fd, _REASON, _REASON_AT).rstrip(b"\0").decode(errors="replace")


def fail(fd: int, why: str) -> None:
    """Write why a start failed. The file's page exists since its first byte, so this works on a full disk too."""
    os.pwrite(fd, why.encode()[:_REASON].ljust(_REASON, b"\0"), _REASON_AT)


def succeed(fd: int) -> None:
    """Write that a collector works: no start has failed."""
    os.pwrite(fd, bytes(8 + _REASON), _REASON_AT - 8)


def _read(fd: int, layout: struct.Struct, at: int) -> bytes:
    """Read a record; one that was not written yet is all zeros."""
    return os.pread(fd, layout.size, at).ljust(layout.size, b"\0")
