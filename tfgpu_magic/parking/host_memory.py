"""The room for one array in host memory: asked before each, under a lock of the user's that is held for that array."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import time
from collections.abc import Callable, Iterator

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.ground.units import MIB, rounded
from tfgpu_magic.machine import host_memory
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.parking.frameworks import refusal

LEAST_MARGIN = 4096 * MIB
"""Bytes that must be left over, or a tenth of the whole, whichever is more."""

_LOCK = "park-1"
_TRY_EVERY = 0.05  # seconds


@contextlib.contextmanager
def room(size: int, wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Reserve so many bytes of host memory for a block, among all processes of this user's.

    Args:
        size: the bytes.
        wanted: returns whether to go on waiting for the others.

    Raises:
        Refused: less is free, beyond the margin, or it is not wanted any more.
    """
    with locked(_LOCK, wanted):
        if missing := shortage(size):
            raise refusal(missing)
        yield


@contextlib.contextmanager
def locked(name: str, wanted: Callable[[], bool], waits: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold a lock of this user's processes in a block; the system releases it when a process ends.

    Args:
        name: that of the lock's file.
        wanted: returns whether to go on waiting for the lock.
        waits: is called again and again while it waits.

    Raises:
        Refused: it is not wanted any more.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(MonitorError, OSError):  # without a directory that is ours, nobody else is kept out
            place = stack.enter_context(BoardDirectory())
            fd = place.open(name, os.O_RDWR | os.O_CREAT)
            stack.callback(os.close, fd)
            while not _try_lock(fd):
                if not wanted():
                    raise refusal(msg("Another process of yours is moving memory, and this one was called off."))
                waits()
                time.sleep(_TRY_EVERY)
            stack.callback(fcntl.flock, fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has it open, too
        yield


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def trim() -> None:
    """Return the memory of freed copies to the system; glibc keeps pieces of less than 32 MiB."""
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def shortage(size: int) -> Message | None:
    """Return where host memory has too little room for so many bytes, and how much; None if it has enough."""
    sizes = host_memory.machine()
    places = [("this machine", sizes.get("MemTotal", 0), sizes.get("MemAvailable", 0))]
    places += [(f"the cgroup {one.cgroup}", one.most, one.free) for one in host_memory.limits()]
    for place, whole, free in places:
        margin = max(LEAST_MARGIN, whole // 10)
        if free < size + margin:
            return msg(
                "Host memory has too little room: {size} are to be copied, and {margin} must be left over, but only "
                "{free} are available on {place}.",
                size=rounded(size),
                margin=rounded(margin),
                free=rounded(free),
                place=place,
            )
    return None
