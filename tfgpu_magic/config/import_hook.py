"""Calls a function as soon as a framework is imported, in whatever way, and never breaks that import."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TextIO

import wrapt

from tfgpu_magic.config.frameworks import NAMES

QUIET = False
"""Whether nothing is said at TensorFlow's import where all is well."""

_registered: set[str] = set()
"""The modules that have a hook: wrapt has no way to remove one, so it must be set only once."""


def call_at_import(do: Callable[[], None], module: str = "tensorflow") -> None:
    """Have a function called at a module's import. Only the first call for a module registers one."""
    if module not in _registered:
        _hook(do, module)
        _registered.add(module)


def _hook(do: Callable[[], None], module: str) -> None:
    wrapt.when_imported(module)(lambda _: _guarded(do, module))


def _guarded(do: Callable[[], None], module: str) -> None:
    try:
        do()
    except Exception as error:  # whatever it is, the user's import must go on
        warn(f"tfgpu_magic: what waited for {NAMES[module]}'s import is NOT in force: {error or type(error).__name__}")
    except BaseException:  # an interrupt: the import fails, and the next one is to call the function again
        sys.modules.pop(module, None)  # as Python does next; while it is there, wrapt would call at once
        _hook(do, module)
        raise


def show(text: str) -> None:
    """Print a text below the cell that imports TensorFlow."""
    _print(text, sys.stdout)


def warn(text: str) -> None:
    """Print a text where errors are shown."""
    _print(text, sys.stderr)


def in_a_cell() -> bool:
    """Tell whether this code runs in IPython: only there may a text be printed, a program's output is its own."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def _print(text: str, stream: TextIO | None) -> None:
    with contextlib.suppress(OSError, ValueError):  # the stream may be closed
        print(text, file=stream)
