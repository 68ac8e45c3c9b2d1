"""What stands in the lock's file beside the lock: collectors that were started, and what those who look want of one."""

from __future__ import annotations

import os
import struct
import time

from tfgpu_magic.monitor.schedule import Wanted

HOLDS = 5.0
"""Seconds in which one who wants something less often changes nothing; all who look say it again and again."""

_START = struct.Struct("<dQ")  # when a collector was last started (the monotonic clock), and how often in vain since
_REASON = 300  # bytes that say why it was in vain
_WANTED = struct.Struct("<dd")  # when somebody said how often (the monotonic clock), and how often, in seconds
_LEAVE = struct.Struct("<d")  # when a collector that cannot read the GPUs was last asked to leave to one that can
_REASON_AT = _START.size
_MEMORY_AT = _REASON_AT + _REASON
_LISTS_AT = _MEMORY_AT + _WANTED.size
_LEAVE_AT = _LISTS_AT + _WANTED.size


def want(fd: int, wanted: Wanted) -> None:
    """Say what is wanted; where somebody who wants a thing more often has lately said so, that stays."""
    for at, every in ((_MEMORY_AT, wanted.memory), (_LISTS_AT, wanted.lists)):
        said, before = _WANTED.unpack(_read(fd, _WANTED, at))
        now = time.monotonic()
        if every <= before or not 0 <= now - said < HOLDS:
            os.pwrite(fd, _WANTED.pack(now, every), at)


def wanted(fd: int) -> Wanted:
    """Read what those who look want."""
    memory, lists = (_WANTED.unpack(_read(fd, _WANTED, at))[1] for at in (_MEMORY_AT, _LISTS_AT))
    memory = max(1.0, memory)
    return Wanted(memory, max(2.0 * memory, lists))


def started(fd: int) -> tuple[float, int]:
    """Return when a collector was last started, on the monotonic clock, and how often in vain since."""
    at, failures = _START.unpack(_read(fd, _START, 0))
    return at, failures


def start(fd: int, failures: int) -> None:
    """Say that a collector is started now, and that so many before it were in vain."""
    os.pwrite(fd, _START.pack(time.monotonic(), failures), 0)


def reason(fd: int) -> str:
    """Return why collectors were started in vain; empty where none has left word."""
    return os.pread(fd, _REASON, _REASON_AT).rstrip(b"\0").decode(errors="replace")


def fail(fd: int, why: str) -> None:
    """Say why a collector was started in vain. The file's page is there since its first byte, on a full disk too."""
    os.pwrite(fd, why.encode()[:_REASON].ljust(_REASON, b"\0"), _REASON_AT)


def succeed(fd: int) -> None:
    """Say that a collector works: no start was in vain."""
    os.pwrite(fd, bytes(8 + _REASON), _REASON_AT - 8)


def ask_to_leave(fd: int) -> None:
    """Ask the collector to leave, if it still cannot read the GPUs."""
    os.pwrite(fd, _LEAVE.pack(time.monotonic()), _LEAVE_AT)


def asked_to_leave(fd: int) -> float:
    """Return when that was last asked, on the monotonic clock."""
    at: float = _LEAVE.unpack(_read(fd, _LEAVE, _LEAVE_AT))[0]
    return at


def _read(fd: int, layout: struct.Struct, at: int) -> bytes:
    """Read what may not have been written yet: it is 0 then."""
    return os.pread(fd, layout.size, at).ljust(layout.size, b"\0")
