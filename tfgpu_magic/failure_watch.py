"""Shows `%tf_gpu why` under a cell that a lack of GPU memory has ended; `insight.why` finds out why.

It is called at the end of each cell, below its traceback, and returns at once unless an error has ended the cell and a
framework is there that may have raised it. It never fails, and keeps nothing of the error.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from tfgpu_magic.config.frameworks import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

_CALLS = "tfgpu_magic.isolate.pool"
"""The module that is there once an isolated call was made: its error is raised here, without its framework."""


class FailureWatch:
    """The watch of a shell's cells.

    Args:
        shell: IPython's shell.
        wanted: returns whether anything is to be shown.
    """

    def __init__(self, shell: Any, wanted: Callable[[], bool] = lambda: True) -> None:
        self._shell, self._wanted = shell, wanted

    def start(self) -> None:
        """Watch the cells; not those of an isolated cell's process, whose error the notebook shows."""
        if not getattr(self._shell, "isolated", False):
            self._shell.events.register("post_run_cell", self._after)

    def stop(self) -> None:
        """Stop watching."""
        with contextlib.suppress(ValueError):  # it was not started
            self._shell.events.unregister("post_run_cell", self._after)

    def _after(self, result: Any) -> None:
        error = result.error_in_exec
        if error is None or not (NAMES.keys() | {_CALLS}) & sys.modules.keys() or not self._wanted():
            return
        with contextlib.suppress(BaseException):  # the user's error is what must be seen, and its class may have code
            from tfgpu_magic.insight.why import showing  # few cells end so, and loading the extension needs none of it

            showing.show(error, result.execution_count)
