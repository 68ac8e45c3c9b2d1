"""What a cell changes of its process besides variables, and what is gone with it: environment, directory, classes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType


class Surroundings:
    """A cell's process as it was before the cell.

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
        """The environment variables that are not what they were, but for those that an import has set."""
        now = dict(os.environ)
        return tuple(name for name in sorted(_Environment.said) if self._variables.get(name) != now.get(name))

    def moved(self) -> bool:
        """Whether the process is in another directory."""
        return _directory() != self._directory

    def classes(self) -> dict[str, type]:
        """The notebook's classes that have other attributes than before."""
        return {name: kind for name, (kind, before) in self._classes.items() if _differ(before, _attributes(kind))}


def _watch(environment: os._Environ[str]) -> None:
    """Have it know from now on what is changed of it."""
    environment.__class__ = _Environment


class _Environment(os._Environ[str]):
    """The environment, with the variables that somebody sets who is no import: libraries set their own in theirs."""

    said: set[str] = set()  # noqa: RUF012  # there is one environment

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(name, value)
        self._say(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._say(name)

    def _say(self, name: str) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return
            frame = frame.f_back
        self.said.add(name)


def _directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it has been removed
        return None


def _attributes(kind: type) -> dict[str, object]:
    """A class' own attributes, without those that Python makes when it likes."""
    return {name: value for name, value in vars(kind).items() if not name.startswith("__")}


def _differ(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Whether anything is another object than before."""
    return before.keys() != now.keys() or any(now[name] is not value for name, value in before.items())
