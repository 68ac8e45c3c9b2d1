"""Holds the cells of an IPython shell, and what it does at a key press, until the state is back.

All cells pass `run_cell_async`: a kernel's and a terminal's, and those that code runs. One whose state does not come
back is not run: IPython shows why in its place, and counts it as a cell with a mistake in its text.
Source: IPython 7.34 to 9, `core/interactiveshell.py`.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from tfgpu_magic.parking.inside.gate import NotBack, Way

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.parking.inside.gate import Gate


def hold(shell: Any, gate: Gate) -> Iterator[str]:
    """Hold a shell's cells, the functions that are called around them, and its completions."""
    if getattr(shell, "active_eventloop", None):
        yield f"%gui {shell.active_eventloop}"
    run, trigger, completions = shell.run_cell_async, shell.events.trigger, shell.Completer.completions

    @functools.wraps(run)  # from whose signature ipykernel learns what it may pass
    async def run_cell_async(raw_cell: str, *args: Any, **options: Any) -> Any:
        try:
            gate.come(Way.CELL)
        except NotBack as error:
            options["preprocessing_exc_tuple"] = (UsageError, UsageError(str(error)), None)
            raw_cell = raw_cell.strip() or "pass"  # a blank one would succeed, and its expressions be evaluated
        return await run(raw_cell, *args, **options)

    def held_trigger(*args: Any, **options: Any) -> None:
        if not gate.closed:  # no cell has run else
            trigger(*args, **options)

    def held_completions(*args: Any, **options: Any) -> Any:
        try:
            gate.come(Way.QUESTION)
        except NotBack:
            return iter(())
        return completions(*args, **options)

    gate.replace(shell, "run_cell_async", run_cell_async)
    gate.replace(shell.events, "trigger", held_trigger)
    if not hasattr(shell, "kernel"):  # whose completions are messages
        gate.replace(shell.Completer, "completions", held_completions)


def ended_by(shell: Any) -> bool:
    """Tell whether the cell that ends now was run by its user, and not by another cell, which goes on."""
    code = type(shell).run_cell.__code__
    return sum(one.frame.f_code is code for one in inspect.stack(0)) <= 1
