"""Tracks the cells of a notebook: what each did goes to the timeline, with a line below those that changed much.

`CellMeasure` is for one cell: what it did is shown below it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from IPython.display import display

from tfgpu_magic.ground.host import CellWatch, title
from tfgpu_magic.ground.units import MIB
from tfgpu_magic.insight import recommend
from tfgpu_magic.insight.measurement import PoolUse
from tfgpu_magic.insight.measuring import Measuring
from tfgpu_magic.insight.session import cell_line
from tfgpu_magic.insight.timeline import TIMELINE

LEAST = 64 * MIB
"""Bytes by which a cell has to change a pool for a line below it, if not said otherwise."""

LONGEST = 200
"""Characters of a cell's line that are kept."""


class Tracker(CellWatch):
    """The tracking of a shell's cells: two tenths of a millisecond a cell at most.

    Args:
        shell: IPython's shell.

    Attributes:
        least: bytes by which a cell has to change a pool for a line below it.
    """

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.least = LEAST
        self._begun: list[tuple[str, Measuring]] = []  # by their titles; a cell may run others, as `%run` does
        self._highest: dict[tuple[str, str], int] = {}

    def stop(self) -> None:
        """Track no more cells. What was tracked stays."""
        super().stop()
        while self._begun:
            self._begun.pop()[1].__exit__(None, None, None)

    def _before(self, info: Any) -> None:
        global _shown
        _shown, measuring = False, Measuring(driver=False)
        TIMELINE.sample(measuring.__enter__().at_beginning)
        self._begun.append((title(info.raw_cell or "")[:LONGEST], measuring))

    def _after(self, result: Any) -> None:
        if not self._begun:  # the cell that said `track on`
            return
        text, measuring = self._begun.pop()
        measuring.__exit__(None, None, None)
        number, error = _outcome(result)
        use = replace(measuring.result, what=text, cell=number, error=error)
        TIMELINE.sample(use.pools)
        TIMELINE.add_cell(use)
        changed = tuple(pool for pool in use.pools if self._is_much(pool))
        if changed and not _shown:
            display(cell_line(changed))  # type: ignore[no-untyped-call]  # IPython's

    def _is_much(self, pool: PoolUse) -> bool:
        """Return whether a pool changed much, or was never as full before by as much."""
        key = pool.framework, pool.name
        before = max(pool.before, self._highest.get(key, 0))
        self._highest[key] = max(before, pool.peak if pool.exact else pool.after)
        return abs(pool.delta) >= self.least or self._highest[key] - before >= self.least


def _outcome(result: Any) -> tuple[int | None, str]:
    """Return a cell's number, and the name of the error that ended it."""
    if result is None:  # ipykernel's, of a cell that was interrupted while it awaited something
        return None, KeyboardInterrupt.__name__
    error = result.error_in_exec or result.error_before_exec
    return result.execution_count, "" if error is None else type(error).__name__


class CellMeasure(CellWatch):
    """Measures the rest of the cell that runs, and shows that below it.

    Args:
        shell: IPython's shell.
        name: the notebook's name that the measurement is put into; empty if it is none.
        fit: whether to say how much to ask for, too.
    """

    def __init__(self, shell: Any, *, name: str, fit: bool) -> None:
        super().__init__(shell)
        self._name, self._fit = name, fit
        self._within = 0  # cells that the cell runs, as `%run` does
        self._measuring = Measuring()

    def start(self) -> None:
        """Measure from now on."""
        self._shell.events.register("pre_run_cell", self._before)
        # Before those that have registered already: to explain an error takes time, which is not the cell's.
        self._shell.events.callbacks["post_run_cell"].insert(0, self._after)
        self._show_traceback = self._shell.showtraceback
        self._shell.showtraceback = self._showing
        self._measuring.__enter__()

    def _showing(self, *args: Any, **kwargs: Any) -> None:
        """Show a traceback, which takes as long as a second, and no time of the cell's."""
        self._measuring.stop_clock()
        self._show_traceback(*args, **kwargs)

    def _before(self, _: Any) -> None:
        self._within += 1

    def _after(self, result: Any) -> None:
        global _shown
        if self._within:
            self._within -= 1
            return
        self.stop()
        own = vars(self._shell)
        if own.get("showtraceback") == self._showing:  # else the cell has put another before it, which calls it
            del own["showtraceback"]
            if self._shell.showtraceback != self._show_traceback:  # the user's, or another measurement's of the cell
                self._shell.showtraceback = self._show_traceback
        error = getattr(result, "error_in_exec", None)
        self._measuring.__exit__(type(error) if error else None, error, None)
        measured = replace(self._measuring.result, error=_outcome(result)[1])
        _shown = True
        display(measured)  # type: ignore[no-untyped-call]  # IPython's
        if self._fit:
            display(recommend.recommendation())  # type: ignore[no-untyped-call]  # IPython's
        if self._name:
            self._shell.user_ns[self._name] = measured


_tracker: Tracker | None = None
"""The one that tracks, if any."""

_shown = False
"""Whether the cell that ends has its measurement below it, which says what a line would."""


def start(shell: Any, least: int) -> None:
    """Track a shell's cells.

    Args:
        shell: IPython's shell.
        least: bytes by which a cell has to change a pool for a line below it.
    """
    global _tracker
    if _tracker is None:
        _tracker = Tracker(shell)
        _tracker.start()
    _tracker.least = least


def stop() -> None:
    """Track no more cells. What was tracked stays."""
    global _tracker
    if _tracker is not None:
        _tracker.stop()
        _tracker = None


def is_on() -> bool:
    """Return whether cells are tracked."""
    return _tracker is not None
