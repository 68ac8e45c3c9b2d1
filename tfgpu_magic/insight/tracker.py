"""Measures the cells of a notebook: each one while they are tracked, for the timeline, or one that asks, to show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from IPython.display import display

from tfgpu_magic.ground.process_kind import CellWatch, title
from tfgpu_magic.ground.units import MIB
from tfgpu_magic.insight.measurement import Measurement, PoolUse
from tfgpu_magic.insight.measuring import Measuring
from tfgpu_magic.insight.session import cell_line
from tfgpu_magic.insight.timeline import TIMELINE

LEAST = 64 * MIB
"""Bytes by which a cell has to change a pool for a line below it, if not said otherwise."""

LONGEST = 200
"""Characters of a cell's line that are kept."""


@dataclass(slots=True)
class _RunningCell:
    """A cell that runs.

    Attributes:
        title: the line of it that tells most.
        tracked: its measurement for the timeline; None if it is not tracked.
        shown: the measurements that are shown below it, each with a function that is called with it then.
    """

    title: str = ""
    tracked: Measuring | None = None
    shown: list[tuple[Measuring, Callable[[Measurement], object]]] = field(default_factory=list)


class CellMeter(CellWatch):
    """Measures a shell's cells. Tracking takes two tenths of a millisecond a cell at most.

    Args:
        shell: IPython's shell.

    Attributes:
        least: bytes by which a cell has to change a pool for a line below it; None while cells are not tracked.
    """

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.least: int | None = None
        self._running: list[_RunningCell] = []  # a cell may run others, as `%run` does
        self._highest: dict[tuple[str, str], int] = {}
        self._watching = False
        self._traceback: tuple[Callable[..., object], Callable[..., object]] | None = None
        """The function that shows tracebacks while a cell is measured, and the one that it calls."""

    def track(self, least: int | None) -> None:
        """Track the cells from the next one on, or if `least` is None, no more. What was tracked stays."""
        self.least = least
        for cell in self._running if least is None else ():
            if cell.tracked is not None:
                cell.tracked.__exit__(None, None, None)
                cell.tracked = None
        self._watch()

    def measure(self, then: Callable[[Measurement], object]) -> None:
        """Measure the rest of the cell that runs, and show that below it.

        Args:
            then: is called with the measurement when it is shown.
        """
        if not self._running:  # it has begun before the cells were watched
            self._running.append(_RunningCell())
        self._watch()
        if self._traceback is None:
            before = self._shell.showtraceback

            def show(*args: Any, **kwargs: Any) -> None:
                """Show a traceback, which takes as long as a second, and no time of the cell's."""
                for cell in self._running:
                    for measuring, _ in cell.shown:
                        measuring.stop_clock()
                before(*args, **kwargs)

            self._traceback, self._shell.showtraceback = (show, before), show
        self._running[-1].shown.append((Measuring().__enter__(), then))

    def _watch(self) -> None:
        """Watch the cells as long as one is tracked or measured."""
        wanted = self.least is not None or bool(self._running)
        if wanted and not self._watching:
            self._shell.events.register("pre_run_cell", self._before_cell)
            # Before those that have registered already: to explain an error takes time, which is not the cell's.
            self._shell.events.callbacks["post_run_cell"].insert(0, self._after_cell)
        elif self._watching and not wanted:
            self.stop()
        self._watching = wanted

    def _before_cell(self, info: Any) -> None:
        cell = _RunningCell()
        if self.least is not None:
            cell = _RunningCell(title(info.raw_cell or "")[:LONGEST], Measuring(driver=False))
            TIMELINE.sample(cell.tracked.__enter__().at_beginning if cell.tracked else ())
        self._running.append(cell)

    def _after_cell(self, result: Any) -> None:
        if not self._running:  # the cell that said `track on`
            return
        cell, changed = self._running.pop(), tuple[PoolUse, ...]()
        number, error = _outcome(result)
        if cell.tracked is not None:
            cell.tracked.__exit__(None, None, None)
            use = replace(cell.tracked.result, what=cell.title, cell=number, error=error)
            TIMELINE.sample(use.pools)
            TIMELINE.add_cell(use)
            changed = tuple(pool for pool in use.pools if self._is_much(pool))
        if not any(other.shown for other in self._running):
            self._restore_traceback()
        raised = getattr(result, "error_in_exec", None)
        for measuring, then in reversed(cell.shown):
            measuring.__exit__(type(raised) if raised else None, raised, None)
            then(replace(measuring.result, error=error))
        if changed and not cell.shown:  # a measurement says the same
            display(cell_line(changed))  # type: ignore[no-untyped-call]  # IPython's
        self._watch()

    def _restore_traceback(self) -> None:
        """Show tracebacks as before, unless the cell has put a function before ours, which calls ours."""
        own = vars(self._shell)
        if self._traceback is not None and own.get("showtraceback") == self._traceback[0]:
            del own["showtraceback"]
            if self._shell.showtraceback != self._traceback[1]:  # the user's own
                self._shell.showtraceback = self._traceback[1]
        self._traceback = None

    def _is_much(self, pool: PoolUse) -> bool:
        """Return whether a pool changed much, or was never as full before by as much."""
        key, least = (pool.framework, pool.name), self.least or 0
        before = max(pool.before, self._highest.get(key, 0))
        self._highest[key] = max(before, pool.peak if pool.exact else pool.after)
        return abs(pool.delta) >= least or self._highest[key] - before >= least


def _outcome(result: Any) -> tuple[int | None, str]:
    """Return a cell's number, and the name of the error that ended it."""
    if result is None:  # ipykernel's, of a cell that was interrupted while it awaited something
        return None, KeyboardInterrupt.__name__
    error = result.error_in_exec or result.error_before_exec
    return result.execution_count, "" if error is None else type(error).__name__


_meter: CellMeter | None = None


def meter(shell: Any) -> CellMeter:
    """Return what measures a shell's cells."""
    global _meter
    if _meter is None:
        _meter = CellMeter(shell)
    return _meter
