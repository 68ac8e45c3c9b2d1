"""The jobs of this process, detached cells and submitted calls: futures that can be listed and stopped."""

from __future__ import annotations

import concurrent.futures
import itertools
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tfgpu_magic.isolate.run import Run

T = TypeVar("T")

WAITING, RUNNING, DONE, STOPPED = "waiting", "running", "done", "stopped"

STOPPING = 1.0
"""Seconds to wait for the end of a job that is stopped, so that the list shows it."""

_MOST_ENDED = 100  # jobs that have ended and are still listed

_numbers = itertools.count(1)
_listed: dict[int, JobFuture[object] | JobStatus] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The status of a job.

    Attributes:
        number: its number.
        state: `WAITING`, `RUNNING`, `DONE`, `STOPPED`, or the name of the exception that it raised.
        seconds: how long it has run, or ran.
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
        title: the text that shows the user which job it is.
        run: the run of its call; None once that is not needed any more.
    """

    def __init__(self, title: str, run: Run) -> None:
        super().__init__()
        self.number = 0
        self.title = title
        self.run: Run | None = run
        self._began = time.monotonic()

    @property
    def pid(self) -> int | None:
        """The id of its process; None if it has none."""
        run = self.run
        return None if run is None else run.pid

    @property
    def waits(self) -> bool:
        """Whether it still waits for what it needs in order to run."""
        return False

    def stop(self) -> None:
        """Interrupt it, as Ctrl-C interrupts a cell. If it does not end, a line says that the next `stop` kills it."""
        run = self.run
        if run is not None:
            run.stop()

    def enlist(self) -> None:
        """List it from now on."""
        self.number, self._began = next(_numbers), time.monotonic()
        _listed[self.number] = self  # type: ignore[assignment]  # the list's readers use no value

    def remember(self) -> None:
        """Replace it in the list by its final status: from then on the list keeps no value alive."""
        _listed[self.number] = self.status()
        for number in list(_listed)[:-_MOST_ENDED]:
            if isinstance(_listed[number], JobStatus):
                del _listed[number]

    def forget(self) -> None:
        """List it no more."""
        _listed.pop(self.number, None)

    def status(self) -> JobStatus:
        """Return its status now."""
        return JobStatus(
            number=self.number,
            state=self._state_name(),
            seconds=time.monotonic() - self._began,
            pid=None if super().done() else self.pid,
            title=self.title,
        )

    def _state_name(self) -> str:
        if not super().done():
            return WAITING if self.waits else RUNNING
        error = super().exception()
        if isinstance(error, KeyboardInterrupt):
            return STOPPED
        return DONE if error is None else type(error).__name__


def statuses() -> list[JobStatus]:
    """Return the status of every job of this process, the oldest first."""
    return [job if isinstance(job, JobStatus) else job.status() for job in list(_listed.values())]


def running() -> list[int]:
    """Return the numbers of the jobs that have not ended."""
    return [job.number for job in statuses() if job.state in (WAITING, RUNNING)]


def stop(number: int) -> bool:
    """Stop the job with a number; return whether there is one that has not ended."""
    job = _listed.get(number)
    if not isinstance(job, JobFuture):
        return False
    job.stop()
    concurrent.futures.wait([job], STOPPING)
    return True
