"""The errors that an isolated cell raises in the notebook: its own, or why it did not run; no frames of ours."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence, Set
from typing import Any

from tfgpu_magic.engine import engine
from tfgpu_magic.engine.offers import offering
from tfgpu_magic.errors import Refused, TfGpuError
from tfgpu_magic.isolate.answer import Answer


def not_run(answer: Answer, shell: Any, above: str) -> BaseException:
    """Return why the cell was not run: its process could not be set up, or an interrupt came before.

    Args:
        answer: what its process said.
        shell: the notebook's IPython.
        above: the line above the cell, without its policy.
    """
    error = answer.error()
    if error is None or isinstance(error, TfGpuError):
        here = engine.current().asked
        origin = f"\nThe notebook's own `{here}` holds for its isolated cells too, unless they say another policy."
        text, ways = (error.text(above), error.ways) if isinstance(error, Refused) else (str(error), ())
        return offering(shell, f"{text}{origin if here.requests else ''}", "", [f"{above} {way}" for way in ways])
    return without_frames(error)


def raised(answer: Answer) -> BaseException | None:
    """Return what the cell raised, or that it was late; IPython will show the traceback of the cell's process."""
    error, shown = answer.error(), answer.shown
    if isinstance(error, SyntaxError):  # of which IPython does not use `_render_traceback_`
        error.__cause__ = None
    if error is not None and answer.late is not None:
        # It was stopped as by Ctrl-C, but the user did not press that.
        shown = (*(line.replace("KeyboardInterrupt", "TimedOut") for line in shown), f"{type(error).__name__}: {error}")
    return None if error is None else _shown_as(error, shown)


def without_frames(error: BaseException) -> BaseException:
    """Have IPython show an error as its name and message only, without a frame of ours."""
    return _shown_as(error, [f"{type(error).__name__}: {error}"])


def _shown_as(error: BaseException, lines: Sequence[str]) -> BaseException:
    """Have IPython show these lines for an exception, by its hook for exceptions of other processes."""
    if lines:
        error._render_traceback_ = _Lines(lines)  # type: ignore[attr-defined]
    return error


class _Lines(tuple[str, ...]):
    """The lines that are shown for an exception; they mark for `%debug` that there are no frames."""

    __slots__ = ()

    def __call__(self) -> list[str]:
        return list(self)


def debug_no_frames(shell: Any) -> None:
    """Have `%debug` and `%pdb` report that such an exception's frames are gone, instead of entering ours."""

    def debug(force: bool = False) -> None:
        if not isinstance(getattr(getattr(sys, "last_value", None), "_render_traceback_", None), _Lines):
            vars(shell).pop("debugger", None)
            shell.debugger(force=force)
        elif force or shell.call_pdb:
            print("Nothing to debug: the cell's frames are gone with its process. A plain cell's are here.")

    shell.debugger = debug


def hint(error: BaseException | None, there: Set[str]) -> str | None:
    """Return a name that the notebook has and the cell did not find, as its text does not show that it reads it."""
    if not isinstance(error, NameError | KeyError):
        return None
    return next((name for name in re.findall(r"['\"`]([^\W\d]\w*)['\"`]", str(error)) if name in there), None)
