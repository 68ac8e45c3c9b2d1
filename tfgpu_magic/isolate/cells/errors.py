"""What an isolated cell raises in the notebook: what it raised itself, or why it did not run, with no frame of ours."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence, Set
from typing import Any

from IPython.core.error import UsageError

from tfgpu_magic import control
from tfgpu_magic.errors import Refused, TfGpuError
from tfgpu_magic.isolate.answer import Answer


def not_run(answer: Answer) -> BaseException:
    """Why the cell was not run: its process could not be set up, or an interrupt came before."""
    error = answer.error()
    if error is None or isinstance(error, TfGpuError):
        here = control.current().asked
        whose = f"\nThe notebook's own `{here}` holds for its isolated cells too, unless they say another policy."
        told = error.text("%%tf_gpu isolate") if isinstance(error, Refused) else str(error)
        return UsageError(f"{told}{whose if here.requests else ''}")
    return as_told(error)


def raised(answer: Answer) -> BaseException | None:
    """What the cell raised, or that it was late, which IPython will show with what the cell's process saw."""
    error, shown = answer.error(), answer.shown
    if isinstance(error, SyntaxError):  # IPython asks none how it wants to be shown
        error.__cause__ = None
    if error is not None and answer.late is not None:
        # It was stopped as by Ctrl-C, and nobody pressed that.
        shown = (*(line.replace("KeyboardInterrupt", "TimedOut") for line in shown), *_story(error))
    return None if error is None else _shown_as(error, shown)


def as_told(error: BaseException) -> BaseException:
    """Have IPython tell an end without an answer: what happened, and no frame of ours."""
    return _shown_as(error, _story(error))


def _story(error: BaseException) -> list[str]:
    """How an end without an answer is told: what happened, and no frame of ours."""
    return [f"{type(error).__name__}: {error}"]


def _shown_as(error: BaseException, lines: Sequence[str]) -> BaseException:
    """Have IPython show these lines for an exception: its own hook for those of other processes."""
    if lines:
        error._render_traceback_ = _Lines(lines)  # type: ignore[attr-defined]
    return error


class _Lines(tuple[str, ...]):
    """What is shown for an exception; `%debug` knows by it that there is no more."""

    __slots__ = ()

    def __call__(self) -> list[str]:
        return list(self)


def debug_no_frames(shell: Any) -> None:
    """Have `%debug` and `%pdb` say of such an exception that its frames are gone, and not stand in ours."""

    def tell(force: bool = False) -> None:
        if not isinstance(getattr(getattr(sys, "last_value", None), "_render_traceback_", None), _Lines):
            vars(shell).pop("debugger", None)
            shell.debugger(force=force)
        elif force or shell.call_pdb:
            print("Nothing to debug: the cell's frames are gone with its process. A plain cell's are here.")

    shell.debugger = tell


def hint(error: BaseException | None, there: Set[str]) -> str | None:
    """A name that the notebook has, and that a cell did not find: its text does not say that it reads it."""
    if not isinstance(error, NameError | KeyError):
        return None
    return next((name for name in re.findall(r"['\"`]([^\W\d]\w*)['\"`]", str(error)) if name in there), None)
