"""Detached isolated cells: futures whose output is shown below their cell; `job_list` lists them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tfgpu_magic.isolate import user_code
from tfgpu_magic.isolate.cells.cell import Cell
from tfgpu_magic.isolate.job_list import RUNNING, JobFuture

Action = Callable[[], None]

_RUNS_CELL = "run_code", "IPython.core.interactiveshell"  # the function that runs a cell's code, and its module


class Job(JobFuture[Any]):
    """An isolated cell that goes on while the notebook does other things; a `concurrent.futures.Future` of its value.

    `job.result()` waits for it and returns its value, or raises what it raised. Its ``-o`` names are put into the
    notebook between cells; or in a cell that asks for its `result`, its `exception`, or whether it is `done`.
    """

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell.title, cell.running)
        self._bring_names: Callable[[], None] = lambda: None
        self.enlist()
        self.set_running_or_notify_cancel()
        threading.Thread(target=self._run, args=(cell,), name=f"tfgpu_magic-job-{self.number}", daemon=True).start()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for its end, put its names into the notebook, and return its value.

        Raises:
            BaseException: what it raised.
            TimeoutError: it has not ended within `timeout` seconds.
        """
        concurrent.futures.wait([self], timeout)
        self._bring_names()
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for its end, put its names into the notebook, and return what it raised; None if nothing.

        Raises:
            TimeoutError: it has not ended within `timeout` seconds.
        """
        concurrent.futures.wait([self], timeout)
        self._bring_names()
        return super().exception(0)

    def done(self) -> bool:
        """Return whether it has ended; then its names are in the notebook."""
        ended = super().done()
        if ended:
            self._bring_names()
        return ended

    def __repr__(self) -> str:
        state = self.status().state
        # This text stays in the notebook, and would be wrong there once the job no longer runs.
        return f"<Job {self.number}, {'begun' if state == RUNNING else state}: {self.title}>"

    def _run(self, cell: Cell) -> None:
        value = error = None
        try:
            value = cell.run()
        except BaseException as raised:  # also the KeyboardInterrupt of `stop`
            error = raised.with_traceback(None)  # whose frames are ours, and would keep the cell
        self.run, self._bring_names = None, cell.bring_names  # the run keeps the cell, and the cell what it was sent
        with user_code.running():
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)
                lines = getattr(error, "_render_traceback_", list)() or [f"{type(error).__name__}: {error}"]
                with contextlib.suppress(Exception):  # a kernel that is ending receives nothing any more
                    cell.sink.write("stderr", "\n".join(lines) + "\n")
        self.remember()


class Deferred:
    """A queue for actions that must not run in the middle of a cell."""

    def __init__(self, shell: Any) -> None:
        self._lock = threading.RLock()
        self._depth = int(_cell_runs())  # of cells that run cells
        self._waiting: list[Action] = []
        shell.events.register("pre_execute", self._begin)
        shell.events.register("post_execute", self._end)

    def do(self, action: Action) -> Action:
        """Do an action now if no cell runs, else after it; return a function that does it at once. Thread-safe.

        It is done once, and is not kept after that.
        """
        left = [action]

        def once() -> None:
            with self._lock:
                while left:
                    left.pop()()

        with self._lock:
            if self._depth:
                self._waiting.append(once)
            else:
                once()
        return once

    def _begin(self) -> None:
        with self._lock:
            self._depth += 1

    def _end(self) -> None:
        with self._lock:
            self._depth = max(0, self._depth - 1)
            if not self._depth:
                waiting, self._waiting = self._waiting, []
                for action in waiting:
                    action()


def _cell_runs() -> bool:
    """Return whether a cell runs now; this may be a thread, or the callback of a widget."""
    frames = itertools.chain.from_iterable(map(user_code.frames, sys._current_frames().values()))
    return any((frame.f_code.co_name, user_code.module_of(frame)) == _RUNS_CELL for frame in frames)


_known: weakref.WeakKeyDictionary[Any, Deferred] = weakref.WeakKeyDictionary()


def deferred(shell: Any) -> Deferred:
    """Return the queue of a shell."""
    found = _known.get(shell)
    if found is None:
        found = _known[shell] = Deferred(shell)
    return found
