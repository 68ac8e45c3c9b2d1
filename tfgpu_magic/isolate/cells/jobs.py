"""Isolated cells that go on by themselves: futures, whose output comes below their cell. `views.jobs` lists them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tfgpu_magic.config.grammar import forms
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.isolate.cells.cell import Cell

RUNNING, DONE, STOPPED = "running", "done", "stopped"

STOPPING = 1.0
"""Seconds to wait for the end of a job that is stopped, so that the list shows it."""

_REMEMBERED = 100  # jobs that have ended and are still listed

_numbers = itertools.count(1)
_listed: dict[int, Job | Standing] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a job stands.

    Attributes:
        number: its number.
        state: `RUNNING`, `DONE`, `STOPPED`, or the name of what it raised.
        seconds: how long it runs, or ran.
        pid: its process; None before it has one, and when it has ended.
        title: the first line of its cell.
    """

    number: int
    state: str
    seconds: float
    pid: int | None
    title: str


class Job(Future[Any]):
    """An isolated cell that goes on while the notebook does other things; a `concurrent.futures.Future` of its value.

    `job.result()` waits for it and gives its value, or raises what it raised. Its ``-o`` names are put into the
    notebook between cells; or in a cell that asks for its `result`, its `exception`, or whether it is `done`.
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.number = next(_numbers)
        self._cell: Cell | None = cell  # until it has ended: it has a copy of all that it reads
        self._title = cell.title
        self._began = time.monotonic()
        self._settle: Callable[[], None] = lambda: None
        _listed[self.number] = self
        self.set_running_or_notify_cancel()
        threading.Thread(target=self._run, args=(cell,), name=f"tfgpu_magic-job-{self.number}", daemon=True).start()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for its value, with its names in the notebook.

        Raises:
            BaseException: what it raised.
            TimeoutError: it has not ended within so many seconds.
        """
        concurrent.futures.wait([self], timeout)
        self._settle()
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for what it raised, None if nothing, with its names in the notebook.

        Raises:
            TimeoutError: it has not ended within so many seconds.
        """
        concurrent.futures.wait([self], timeout)
        self._settle()
        return super().exception(0)

    def done(self) -> bool:
        """Whether it has ended; then its names are in the notebook."""
        ended = super().done()
        if ended:
            self._settle()
        return ended

    def stop(self) -> None:
        """Interrupt it, as Ctrl-C interrupts a cell; it is killed when it does not heed that, or at the second time."""
        cell = self._cell
        if cell is not None:
            cell.stop()

    def standing(self) -> Standing:
        """How it stands now."""
        cell = self._cell
        return Standing(
            number=self.number,
            state=self._word(),
            seconds=time.monotonic() - self._began,
            pid=None if super().done() or cell is None else cell.pid,
            title=self._title,
        )

    def _word(self) -> str:
        if not super().done():
            return RUNNING
        error = super().exception()
        if isinstance(error, KeyboardInterrupt):
            return STOPPED
        return DONE if error is None else type(error).__name__

    def __repr__(self) -> str:
        state = self.standing().state
        # What is shown of it stays in the notebook, and it does not stay running.
        return f"<Job {self.number}, {'begun' if state == RUNNING else state}: {self._title}>"

    def _run(self, cell: Cell) -> None:
        try:
            value = cell.run()
            self._cell, self._settle = None, cell.settle
            self.set_result(value)
        except BaseException as error:  # also the KeyboardInterrupt of `stop`
            self._cell, self._settle = None, cell.settle
            self.set_exception(error.with_traceback(None))  # which is ours, and would keep the cell
            lines = getattr(error, "_render_traceback_", list)() or [f"{type(error).__name__}: {error}"]
            with contextlib.suppress(Exception):  # a kernel that is ending hears nothing any more
                cell.screen.write("stderr", "\n".join(lines) + "\n")
        # Its value is the notebook's alone from here on.
        _listed[self.number] = self.standing()
        for number in list(_listed)[:-_REMEMBERED]:
            if isinstance(_listed[number], Standing):
                del _listed[number]


def standings() -> list[Standing]:
    """Every job of this kernel, the oldest first."""
    return [job if isinstance(job, Standing) else job.standing() for job in list(_listed.values())]


def stop(words: str) -> None:
    """Stop a job by its number: what follows `jobs`.

    Raises:
        PolicyError: it is not `stop` and the number of a job that runs.
    """
    verb, _, number = words.partition(" ")
    job = _listed.get(int(number)) if number.strip().isdecimal() else None
    if verb != "stop" or not isinstance(job, Job):
        running = [str(one.number) for one in standings() if one.state == RUNNING]
        these = f"Job {', '.join(running)} can be stopped." if running else "No job runs."
        raise PolicyError(f"`jobs {words}` cannot be done. {these}{forms('jobs')}")
    job.stop()
    concurrent.futures.wait([job], STOPPING)
