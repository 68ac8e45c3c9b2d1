"""What other kernels of this user report for a plan, and a lock so that one kernel picks or divides at a time."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfgpu_magic.model.report import Report
    from tfgpu_magic.monitor.board.directory import BoardDirectory


LOCK = "pick"
"""The file whose lock a kernel holds while it picks, or settles a fair part."""
LOCK_TIMEOUT = 3.0
"""Seconds to wait for the lock. A holder that takes longer hangs, and two kernels on one GPU are the lesser evil."""


_announce: Callable[[], None] = lambda: None  # noqa: E731


@contextlib.contextmanager
def board() -> Iterator[BoardDirectory | None]:
    """Give the board's directory; None where it cannot be used."""
    with contextlib.ExitStack() as stack:
        place: BoardDirectory | None = None
        with contextlib.suppress(MonitorError, ImportError):
            place = stack.enter_context(_place())
        yield place


@contextlib.contextmanager
def alone() -> Iterator[BoardDirectory | None]:
    """Give what `board` gives; while the block runs, no other kernel of this user is in one. Announce its end."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(board())
        if place is not None:
            with contextlib.suppress(MonitorError):
                stack.callback(os.close, fd := place.open(LOCK, os.O_RDWR | os.O_CREAT))
                _lock(fd)
        yield place
        _announce()


def reports(place: BoardDirectory) -> tuple[Report, ...]:
    """Return the reports of all other kernels and programs of this user that are alive."""
    from tfgpu_magic.monitor.board.report_files import ReportFiles  # speed of %load_ext, as below

    with contextlib.suppress(MonitorError), contextlib.closing(ReportFiles(place)) as everywhere:
        return everywhere.read()
    return ()


def picks(found: Iterable[Report]) -> Mapping[str, float]:
    """Return how many of the processes that report use or will use each GPU, by UUID."""
    claims: dict[str, float] = {}
    for report in found:
        for use in report.uses:  # a kernel reports the GPUs that it uses or will use, and no others
            claims[use.gpu] = claims.get(use.gpu, 0.0) + 1.0
    return claims


def announced_by(announce: Callable[[], None] | None) -> None:
    """Set the function that announces to other kernels what was picked; None sets none."""
    global _announce
    _announce = announce or (lambda: None)


def _place() -> BoardDirectory:
    from tfgpu_magic.monitor.board.directory import BoardDirectory  # speed of %load_ext: only a policy needs the board

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
