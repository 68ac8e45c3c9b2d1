"""Which GPUs other kernels of this user have picked, and a lock so that one kernel picks at a time."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfgpu_magic.monitor.directory import BoardDirectory


LOCK = "pick"
"""The file whose lock a kernel holds while it picks."""
LOCK_TIMEOUT = 3.0
"""Seconds to wait for the lock. A holder that takes longer hangs, and two kernels on one GPU are the lesser evil."""


_announce: Callable[[], None] = lambda: None  # noqa: E731


def others() -> Mapping[str, float]:
    """Return how many other kernels use or will use each GPU, by UUID; nothing where the board cannot be used."""
    with contextlib.suppress(MonitorError, ImportError), _place() as place:
        return _count(place)
    return {}


@contextlib.contextmanager
def picking() -> Iterator[Mapping[str, float]]:
    """Give what `others` returns; while the block runs, no other kernel of this user picks. Announce its end."""
    with contextlib.ExitStack() as stack:
        claims: Mapping[str, float] = {}
        with contextlib.suppress(MonitorError, ImportError):
            place = stack.enter_context(_place())
            stack.callback(os.close, fd := place.open(LOCK, os.O_RDWR | os.O_CREAT))
            _lock(fd)
            claims = _count(place)
        yield claims
        _announce()


def announced_by(announce: Callable[[], None] | None) -> None:
    """Set the function that announces to other kernels what was picked; None sets none."""
    global _announce
    _announce = announce or (lambda: None)


def _place() -> BoardDirectory:
    from tfgpu_magic.monitor.directory import BoardDirectory  # speed of %load_ext: only picking needs the board

    return BoardDirectory()


def _lock(fd: int) -> None:
    import fcntl  # on Unix only, as the board

    end = time.monotonic() + LOCK_TIMEOUT
    while time.monotonic() < end:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system releases it when this process ends, however
        except OSError:
            time.sleep(0.01)
        else:
            return


def _count(place: BoardDirectory) -> Mapping[str, float]:
    from tfgpu_magic.monitor.report_files import AllReportFiles  # speed of %load_ext, as above

    claims: dict[str, float] = {}
    with contextlib.closing(AllReportFiles(place)) as everywhere:
        for report in everywhere.read():
            for use in report.uses:  # a kernel reports the GPUs that it uses or will use, and no others
                claims[use.gpu] = claims.get(use.gpu, 0.0) + 1.0
    return claims
