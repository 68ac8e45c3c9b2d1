"""Finds what a cell changes of its process besides variables: environment, working directory, classes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType


class Surroundings:
    """The state of a cell's process before the cell.

    Args:
        namespace: the names that the cell begins with.
    """

    def __init__(self, namespace: Mapping[str, object]) -> None:
        _watch(os.environ)
        self._variables = dict(os.environ)
        self._directory = _directory()
        named = {name: value for name, value in namespace.items() if isinstance(value, type)}
        kinds = {type(value).__qualname__: type(value) for value in namespace.values()}
        self._classes = {
            name: (kind, _attributes(kind)) for name, kind in (kinds | named).items() if kind.__module__ == "__main__"
        }

    def variables(self) -> tuple[str, ...]:
        """Return the environment variables that have changed, without those that an import has set."""
        now = dict(os.environ)
        return tuple(name for name in sorted(_Environment.changed) if self._variables.get(name) != now.get(name))

    def moved(self) -> bool:
        """Tell whether the process is in another directory."""
        return _directory() != self._directory

    def classes(self) -> dict[str, type]:
        """Return the notebook's classes that have other attributes than before."""
        return {name: kind for name, (kind, before) in self._classes.items() if _differ(before, _attributes(kind))}


def _watch(environment: os._Environ[str]) -> None:
    """Have the environment record its changes from now on."""
    environment.__class__ = _Environment


class _Environment(os._Environ[str]):
    """The environment, with the variables that are set outside of imports, during which libraries set their own."""

    changed: set[str] = set()  # noqa: RUF012  # there is one environment

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name, value)
        self._record(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._record(name)

    def _record(self, name: str) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return
            frame = frame.f_back
        self.changed.add(name)


def _directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it has been removed
        return None


def _attributes(kind: type) -> dict[str, object]:
    """Return a class's own attributes, without those that Python may add at any time."""
    return {name: value for name, value in vars(kind).items() if not name.startswith("__")}


def _differ(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Tell whether any attribute is another object than before."""
    return before.keys() != now.keys() or any(now[name] is not value for name, value in before.items())
