"""The room for one array in host memory: asked before each, under a lock of the user's that is held for that array."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.isolate import host_memory
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.units import MIB, rounded

LEAST_MARGIN = 4096 * MIB
"""Bytes that must be left over, or a tenth of the whole, whichever is more."""

_LOCK = "park-1"
_TRY_EVERY = 0.05  # seconds


class NoRoom(Exception):
    """Host memory has no room for an array; the text says how much is missing where."""


@contextlib.contextmanager
def room(size: int, wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Have the only right of all this user's processes to fill so many bytes of host memory, in the block.

    Args:
        size: the bytes.
        wanted: returns whether to go on waiting for that right.

    Raises:
        NoRoom: less is free, beyond the margin; or it is not wanted any more.
    """
    with turn(_LOCK, wanted):
        if missing := shortage(size):
            raise NoRoom(missing)
        yield


@contextlib.contextmanager
def turn(name: str, wanted: Callable[[], bool], waits: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Keep all others of this user's processes out of the blocks of a name.

    Args:
        name: that of the file.
        wanted: returns whether to go on waiting for one of them.
        waits: is called as long as it waits.

    Raises:
        NoRoom: it is not wanted any more.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(MonitorError, OSError):  # without a directory that is ours, nobody else is kept out
            place = stack.enter_context(BoardDirectory())
            fd = place.open(name, os.O_RDWR | os.O_CREAT)
            stack.callback(os.close, fd)
            while not _locked(fd):
                if not wanted():
                    raise NoRoom("Another process of yours is moving memory, and this one was called off.")
                waits()
                time.sleep(_TRY_EVERY)
            stack.callback(fcntl.flock, fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has it open, too
        yield


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def shortage(size: int) -> str:
    """Return where host memory has too little room for so many bytes, and how much; empty if it has enough."""
    sizes = host_memory.machine()
    places = [("this machine", sizes.get("MemTotal", 0), sizes.get("MemAvailable", 0))]
    places += [(f"the cgroup {one.cgroup}", one.most, one.left) for one in host_memory.limits()]
    for name, whole, free in places:
        margin = max(LEAST_MARGIN, whole // 10)
        if free < size + margin:
            return (
                f"Host memory has too little room: {rounded(size)} are to be copied, and {rounded(margin)} must be "
                f"left over, but only {rounded(free)} are available on {name}."
            )
    return ""
