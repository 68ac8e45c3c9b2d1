"""Calls a function as soon as a framework is imported, in whatever way, and never breaks that import."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TextIO

import wrapt

from tfgpu_magic.frameworks import NAMES

QUIET = False
"""Whether nothing is said at TensorFlow's import where all is well."""

_given: set[tuple[str, Callable[[], None]]] = set()
"""The functions that were given for each module: each is called once."""

_waiting: dict[str, list[Callable[[], None]]] = {}
"""The functions that are still to be called, by module, in the order in which they were given."""


def call_at_import(do: Callable[[], None], module: str = "tensorflow") -> None:
    """Have a function called at a module's import, after those that were given before; now, if it is imported.

    The same function is called once, however often it is given.
    """
    if (module, do) in _given:
        return
    _given.add((module, do))
    waiting = _waiting.setdefault(module, [])
    waiting.append(do)
    if len(waiting) == 1:  # wrapt has no way to remove a hook, so there is one for all of them
        _hook(module)


def _hook(module: str) -> None:
    wrapt.when_imported(module)(lambda _: _call(module))


def _call(module: str) -> None:
    waiting = _waiting[module]
    while waiting:
        _guarded(waiting[0], module)
        del waiting[0]


def _guarded(do: Callable[[], None], module: str) -> None:
    try:
        do()
    except Exception as error:  # whatever it is, the user's import must go on
        why = str(error) or type(error).__name__
        warn(f"tfgpu_magic: what waited for {NAMES[module]}'s import is NOT in force: {why}")
    except BaseException:  # an interrupt
        if _is_importing(module):  # the import fails, and the next one is to call the function again
            sys.modules.pop(module, None)  # as Python does next; while it is there, wrapt would call at once
            _hook(module)
        else:
            _given.difference_update((module, waiting) for waiting in _waiting.pop(module))
        raise


def _is_importing(module: str) -> bool:
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


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
