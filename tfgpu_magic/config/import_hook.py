"""Has what waits done as soon as TensorFlow is imported, in whatever way it is, and never breaks that import."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TextIO

import wrapt

_held = False


def hold(do: Callable[[], None]) -> None:
    """Have it done at TensorFlow's import. Once is enough, whatever waits then."""
    global _held  # wrapt has no way to take a hook back, so it must be set only once
    if not _held:
        _hook(do)
        _held = True


def _hook(do: Callable[[], None]) -> None:
    wrapt.when_imported("tensorflow")(lambda _: _guarded(do))


def _guarded(do: Callable[[], None]) -> None:
    try:
        do()
    except Exception as error:  # whatever it is, the user's import must go on
        warn(f"tfgpu_magic: what waited for TensorFlow's import is NOT in force: {error or type(error).__name__}")
    except BaseException:  # an interrupt: the import fails, and the next one is to find what waits
        sys.modules.pop("tensorflow", None)  # as Python does next; while it is there, wrapt would not wait
        _hook(do)
        raise


def say(text: str) -> None:
    """Say it below the cell that imports TensorFlow."""
    _print(text, sys.stdout)


def warn(text: str) -> None:
    """Say it where errors are said."""
    _print(text, sys.stderr)


def in_a_cell() -> bool:
    """Tell whether there is a cell, below which news are an answer: a program's output is the program's."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def _print(text: str, stream: TextIO | None) -> None:
    with contextlib.suppress(OSError, ValueError):  # the stream may be closed
        print(text, file=stream)
