"""The GPUs on which processes of this user's have just found no room: a small file for each, as old as that news."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.machine.board.directory import BoardDirectory

PREFIX = "wanted-1-"
"""How the files' names begin, with the version of their content: the pid of the process that has found no room last."""
EXPIRES_AFTER = 60.0
"""Seconds after which nobody is taken to want that room any more; who waits for it says so again."""

_PID = 20  # bytes of a pid as text


def note(gpus: Iterable[str]) -> None:
    """Note that this process has found no room on these GPUs, by UUID; without a directory of the user's, nobody knows.

    Args:
        gpus: their UUIDs.
    """
    with contextlib.suppress(MonitorError, OSError), BoardDirectory() as place:
        for gpu in gpus:
            fd = place.open(PREFIX + gpu, os.O_RDWR | os.O_CREAT)
            try:
                os.pwrite(fd, str(os.getpid()).encode().ljust(_PID), 0)
            finally:
                os.close(fd)


def by_others() -> set[str]:
    """Return the UUIDs of the GPUs on which another process has found no room within the last `EXPIRES_AFTER`."""
    found: set[str] = set()
    with contextlib.suppress(MonitorError, OSError), BoardDirectory() as place:
        for name in place.names(PREFIX):
            fd = place.open(name, os.O_RDONLY)
            try:
                fresh = time.time() - os.fstat(fd).st_mtime < EXPIRES_AFTER
                if fresh and os.pread(fd, _PID, 0).strip() != str(os.getpid()).encode():
                    found.add(name.removeprefix(PREFIX))
            finally:
                os.close(fd)
    return found
