"""Defers actions until a cell has ended: showing a figure's picture or the summary, binding the names of jobs."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

Action = Callable[[], None]

_RUNS_CELL = "run_code", "IPython.core.interactiveshell"  # the function that runs a cell's code, and its module


def afterwards(shell: Any, action: Action) -> None:
    """Do an action when the running cell is over, and has shown its value or its error."""

    def once() -> None:
        shell.events.unregister("post_execute", once)
        action()

    shell.events.register("post_execute", once)


def display_once(shell: Any, value: object, shown: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
    """Have IPython display a value as the cell's process did, which can do more: show a figure's picture.

    It applies to the display at the end of this cell only: by the next cell the value may have changed.
    """
    hook = shell.displayhook

    def forget() -> None:
        hook.__dict__.pop("compute_format_data", None)

    def compute(result: object) -> Any:
        forget()
        return shown if result is value else hook.compute_format_data(result)

    hook.compute_format_data = compute
    afterwards(shell, forget)


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
    """Tell whether a cell runs now; this may be a thread, or the callback of a widget."""
    for frame in sys._current_frames().values():
        while (outer := frame.f_back) is not None:
            if (frame.f_code.co_name, frame.f_globals.get("__name__")) == _RUNS_CELL:
                return True
            frame = outer
    return False


_known: weakref.WeakKeyDictionary[Any, Deferred] = weakref.WeakKeyDictionary()


def deferred(shell: Any) -> Deferred:
    """Return the queue of a shell."""
    found = _known.get(shell)
    if found is None:
        found = _known[shell] = Deferred(shell)
    return found
