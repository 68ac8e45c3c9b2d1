"""Calls a function as soon as a framework is imported, in whatever way, and never breaks that import."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

from tfgpu_magic.frameworks import NAMES

QUIET = False
"""Whether nothing is said at TensorFlow's import where all is well."""

SPEAKER = "tfgpu_magic"
"""Who says what is said: under `tfgpu run`, `tfgpu`."""

_given: set[tuple[str, Callable[[], None]]] = set()
"""The functions that were given for each module: each is called once."""

_waiting: dict[str, list[Callable[[], None]]] = {}
"""The functions that are still to be called, by module, in the order in which they were given."""


def call_at_import(do: Callable[[], None], module: str = "tensorflow") -> None:
    """Call a function at a module's import, after those that were given before; now, if it is imported.

    The same function is called once, however often it is given.
    """
    if (module, do) in _given:
        return
    _given.add((module, do))
    waiting = _waiting.setdefault(module, [])
    waiting.append(do)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    if len(waiting) == 1 and sys.modules.get(module) is not None:  # else its import calls all of them
        _call(module)


class _Finder:
    """Finds a module that functions wait for as the other finders do, and has its import call them.

    Source: Python's import system, `importlib.abc.MetaPathFinder` and `Loader`.
    """

    def __init__(self) -> None:
        self._asking: set[tuple[str, int]] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        one = (name, threading.get_ident())
        if not _waiting.get(name) or one in self._asking:  # the others may ask this one in turn
            return None
        self._asking.add(one)
        try:
            others = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
            found: Any = next(filter(None, (find(name, path, target) for find in others if find)), None)
        finally:
            self._asking.discard(one)
        if hasattr(getattr(found, "loader", None), "exec_module"):
            found.loader = _Loader(found.loader)
        return found


_FINDER: Any = _Finder()


class _Loader:
    """Loads a module as its own loader does, which the module has from then on, and calls what waited for it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy that is made asks for some before it has the loader
            raise AttributeError(name)
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _call(module.__name__)


def _call(module: str) -> None:
    waiting = _waiting.get(module, [])
    while waiting:
        _call_safely(waiting[0], module)
        del waiting[0]


def _call_safely(do: Callable[[], None], module: str) -> None:
    try:
        do()
    except Exception as error:  # whatever it is, the user's import must go on
        why = str(error) or type(error).__name__
        warn(f"tfgpu_magic: what waited for {NAMES.get(module, module)}'s import is NOT in force: {why}")
    except BaseException:  # an interrupt
        if not _is_importing(module):  # else the import fails, and the next one is to call the function again
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


def notify(text: str) -> None:
    """Print a note for the user where it is seen: below the cell, or beside a program's errors."""
    _print(f"{SPEAKER}: {text}", sys.stdout if is_in_ipython() else sys.stderr)


def is_in_ipython() -> bool:
    """Return whether this code runs in IPython: only there may a text be printed, a program's output is its own."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def _print(text: str, stream: TextIO | None) -> None:
    with contextlib.suppress(OSError, ValueError):  # the stream may be closed
        print(text, file=stream)
