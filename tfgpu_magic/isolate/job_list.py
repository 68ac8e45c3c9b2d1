"""What goes on by itself in this process, detached cells and submitted calls: futures that are listed and stopped."""

from __future__ import annotations

import concurrent.futures
import itertools
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

WAITING, RUNNING, DONE, STOPPED = "waiting", "running", "done", "stopped"

STOPPING = 1.0
"""Seconds to wait for the end of a job that is stopped, so that the list shows it."""

_REMEMBERED = 100  # jobs that have ended and are still listed

_numbers = itertools.count(1)
_listed: dict[int, JobFuture[object] | JobStatus] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """How a job stands.

    Attributes:
        number: its number.
        state: `WAITING`, `RUNNING`, `DONE`, `STOPPED`, or the name of what it raised.
        seconds: how long it runs, or ran.
        pid: its process; None before it has one, and when it has ended.
        title: the first line of its cell, or its function's name.
    """

    number: int
    state: str
    seconds: float
    pid: int | None
    title: str


class JobFuture(Future[T]):
    """A future that `%tf_gpu jobs` lists from when it begins.

    Attributes:
        number: its number in the list; 0 before it is there.
        title: what people know it by.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self.number = 0
        self.title = title
        self._began = time.monotonic()

    @property
    def pid(self) -> int | None:
        """Its process, once it has one."""
        return None

    @property
    def waits(self) -> bool:
        """Whether it has not got yet what it needs in order to run."""
        return False

    def stop(self) -> None:
        """Interrupt it, as Ctrl-C interrupts a cell; it is killed when it does not heed that, or at the second time."""
        raise NotImplementedError

    def enlist(self) -> None:
        """Have it listed from now on."""
        self.number, self._began = next(_numbers), time.monotonic()
        _listed[self.number] = self  # type: ignore[assignment]  # nobody asks the list for a value

    def remember(self) -> None:
        """Have it listed as it stands now, when it has ended: its value is nobody's here from then on."""
        _listed[self.number] = self.standing()
        for number in list(_listed)[:-_REMEMBERED]:
            if isinstance(_listed[number], JobStatus):
                del _listed[number]

    def forget(self) -> None:
        """Have it listed no more."""
        _listed.pop(self.number, None)

    def standing(self) -> JobStatus:
        """How it stands now."""
        return JobStatus(
            number=self.number,
            state=self._word(),
            seconds=time.monotonic() - self._began,
            pid=None if super().done() else self.pid,
            title=self.title,
        )

    def _word(self) -> str:
        if not super().done():
            return WAITING if self.waits else RUNNING
        error = super().exception()
        if isinstance(error, KeyboardInterrupt):
            return STOPPED
        return DONE if error is None else type(error).__name__


def statuses() -> list[JobStatus]:
    """Every job of this process, the oldest first."""
    return [job if isinstance(job, JobStatus) else job.standing() for job in list(_listed.values())]


def running() -> list[int]:
    """The numbers of those that have not ended."""
    return [one.number for one in statuses() if one.state in (WAITING, RUNNING)]


def stop(number: int) -> bool:
    """Stop the job of that number, and say whether there is one that has not ended."""
    job = _listed.get(number)
    if not isinstance(job, JobFuture):
        return False
    job.stop()
    concurrent.futures.wait([job], STOPPING)
    return True
