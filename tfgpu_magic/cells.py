"""IPython's cells: what one is called, and the base of what watches them."""

from __future__ import annotations

import contextlib
from typing import Any


def title(body: str) -> str:
    """Return a cell's first line that is no import, magic or comment; else its first line."""
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    first = [line for line in lines if not line.startswith(("#", "import ", "from ", "%"))]
    return next(iter([*first, *lines]), "")


class CellWatch:
    """A watch of the cells, which does nothing yet.

    Args:
        shell: IPython's shell.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def start(self) -> None:
        """Watch the cells, from the end of the one that runs on."""
        self._shell.events.register("pre_run_cell", self._before)
        self._shell.events.register("post_run_cell", self._after)

    def stop(self) -> None:
        """Watch no more."""
        with contextlib.suppress(ValueError):  # it was not started
            self._shell.events.unregister("pre_run_cell", self._before)
            self._shell.events.unregister("post_run_cell", self._after)

    def _before(self, info: Any) -> None:
        """Called before a cell, with IPython's `ExecutionInfo`."""

    def _after(self, result: Any) -> None:
        """Called after it, with its `ExecutionResult`; ipykernel has None of a cell interrupted while it awaited."""
