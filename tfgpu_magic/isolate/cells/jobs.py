"""Isolated cells that go on by themselves: futures, whose output comes below their cell. `job_list` knows them all."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

from tfgpu_magic.isolate.cells.cell import Cell
from tfgpu_magic.isolate.cells.line import CellLine
from tfgpu_magic.isolate.job_list import RUNNING, JobFuture
from tfgpu_magic.isolate.sinks import OwnStreams, below


class Job(JobFuture[Any]):
    """An isolated cell that goes on while the notebook does other things; a `concurrent.futures.Future` of its value.

    `job.result()` waits for it and gives its value, or raises what it raised. Its ``-o`` names are put into the
    notebook between cells; or in a cell that asks for its `result`, its `exception`, or whether it is `done`.
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell.title)
        self._cell: Cell | None = cell  # until it has ended: it has a copy of all that it reads
        self._settle: Callable[[], None] = lambda: None
        self.enlist()
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

    @property
    def pid(self) -> int | None:
        """Its process, once it has one."""
        cell = self._cell
        return None if cell is None else cell.pid

    def stop(self) -> None:
        """Interrupt it, as Ctrl-C interrupts a cell; it is killed when it does not heed that, or at the second time."""
        cell = self._cell
        if cell is not None:
            cell.stop()

    def __repr__(self) -> str:
        state = self.status().state
        # What is shown of it stays in the notebook, and it does not stay running.
        return f"<Job {self.number}, {'begun' if state == RUNNING else state}: {self.title}>"

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
                cell.sink.write("stderr", "\n".join(lines) + "\n")
        self.remember()


def begin(shell: Any, asked: CellLine, source: str) -> Callable[[], object]:
    """Get a cell ready; what is returned runs it and gives its value, or has it go on and gives its job."""
    cell = Cell(shell, asked, source, below(shell) if asked.detach else OwnStreams())
    return functools.partial(Job, cell) if asked.detach else cell.run
