"""The environment variables that tfgpu_magic has changed, with the values before, so that changes can be undone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from tfgpu_magic.policy.process_state import VARIABLES


class EnvironmentChanges:
    """A record of the variables that were written; a value that other code has changed since counts as its own."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[str | None, str | None]] = {}  # before us, and by us

    def outside(self) -> dict[str, str]:
        """Return those of `VARIABLES` that are set, with their values without our changes."""
        found = {name: self._before(name) for name in VARIABLES}
        return {name: value for name, value in found.items() if value is not None}

    def original(self) -> dict[str, str]:
        """Return a copy of all variables without our changes."""
        kept = {name: value for name, value in environment().items() if name not in self._written}
        theirs = {name: self._before(name) for name in self._written}
        return kept | {name: value for name, value in theirs.items() if value is not None}

    def write(self, wanted: Mapping[str, str | None]) -> None:
        """Set the wanted variables, None to remove one, and restore every other variable that was changed before."""
        for name in {*wanted, *self._written}:
            before = self._before(name)
            value = wanted.get(name, before)
            self._written[name] = (before, value)
            export(name, value)

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Restore everything as it was if the block raises anything."""
        before, written = environment(), dict(self._written)
        try:
            yield
        except BaseException:
            for name in {*written, *self._written}:
                export(name, before.get(name))
            self._written = written
            raise

    def _before(self, name: str) -> str | None:
        now = os.environ.get(name)
        before, ours = self._written.get(name, (now, now))
        return before if now == ours else now


def environment() -> dict[str, str]:
    """Return a copy of all variables; it is made again if another thread removes one meanwhile."""
    while True:
        with suppress(KeyError):
            return dict(os.environ)


def variable(name: str) -> str | None:
    """Return one variable; to copy all takes some 50 µs."""
    return os.environ.get(name)


_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""With 2, TensorFlow logs errors only. Source: TensorFlow, `tsl/platform/default/logging.cc`."""

_quietened = EnvironmentChanges()


def quieten(*, on: bool) -> None:
    """Have TensorFlow write only errors to its log, or all of it; a level that others have set is left alone."""
    _quietened.write({_LOG_LEVEL: "2"} if on and _LOG_LEVEL not in _quietened.original() else {})


def adopt(environment: Mapping[str, str]) -> None:
    """Make another process's environment this one's."""
    for name in {*os.environ, *environment}:
        if os.environ.get(name) != environment.get(name):
            export(name, environment.get(name))


def export(name: str, value: str | None) -> None:
    """Set a variable for this process and for those that it starts; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
