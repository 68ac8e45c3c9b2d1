"""Shows `%tf_gpu why` under a cell that a lack of GPU memory has ended.

It is called at the end of each cell, below its traceback, and returns at once unless there was an error and a framework
is there that may have raised it. It never fails, and keeps nothing of the error.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from tfgpu_magic.cell_watch import CellWatch
from tfgpu_magic.frameworks import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

_CALLS = "tfgpu_magic.isolate.pool"
"""The module that is there once an isolated call was made: its error is raised here, without its framework."""


class FailureWatch(CellWatch):
    """The watch of a shell's cells.

    Args:
        shell: IPython's shell.
        wanted: returns whether anything is to be shown.
    """

    def __init__(self, shell: Any, wanted: Callable[[], bool] = lambda: True) -> None:
        super().__init__(shell)
        self._wanted = wanted
        self._known = id(_last())  # the error itself is not kept

    def start(self) -> None:
        """Watch the cells; not those of an isolated cell's process, whose error the notebook shows."""
        if not getattr(self._shell, "isolated", False):
            super().start()

    def _before(self, _: Any) -> None:
        self._known = id(_last())

    def _after(self, result: Any) -> None:
        error = getattr(result, "error_in_exec", None)  # a cell that was interrupted while it awaited has no result
        if error is None and id(_last()) != self._known:  # a traceback that the cell has gone on from, as `%run` does
            error = _last()
        self._known = id(_last())  # that of a cell within a cell is told once
        if error is None or not self._wanted() or not (NAMES.keys() | {_CALLS}) & sys.modules.keys():
            return
        with contextlib.suppress(BaseException):  # the user's error is what must be seen, and its class may have code
            from tfgpu_magic.insight.why import explaining  # few cells end so: loading the extension needs none of it

            explaining.show(error, getattr(result, "execution_count", None))


def _last() -> Any:
    """Return the last error that was shown; None where it was let go of."""
    return getattr(sys, "last_value", None)
