"""Blocks user code while this process is parked: a gate on every way into it, until its GPU state is back.

User code would compute from emptied arrays. So each way in has a function of ours in place of one of IPython's, of the
kernel's or of ours, until the gate is opened (`ipython`). Parking is refused while code runs that has no such way in
(`running_code`).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.message import Message


class StillParked(Refused):
    """The GPU state is not back; the message says why, and what to do next."""

    def __init__(self, reason: Message) -> None:
        super().__init__(reason, verdict=None)


Blocker: TypeAlias = Callable[["Gate"], Iterator[str]]
"""Blocks one way in through a gate, and yields the names of what may use the GPU and cannot be blocked."""


class Gate:
    """The gate of this process, with the ways in that it blocks.

    What is blocked calls `come`, in any thread, which brings the state back and returns, or raises `StillParked`. With
    `in_cell` it is for a cell, below which its wait is shown.
    """

    def __init__(self, come: Callable[..., None], blockers: Sequence[Blocker]) -> None:
        self.come = come
        self._blockers = blockers
        self._undo = contextlib.ExitStack()
        self.closed = False

    def close(self) -> tuple[str, ...]:
        """Block every way in from now on, and return the names of what cannot be blocked."""
        self.closed = True
        if gc.isenabled():  # so that no finaliser of the user's runs, on whatever thread
            gc.disable()
            self._undo.callback(gc.enable)
        names: list[str] = []
        for block in self._blockers:
            try:
                names += block(self)
            except Exception as error:  # whatever it is, nobody knows then what runs while the state is away
                names.append(f"a library of another version than is known here ({error})")
        return tuple(dict.fromkeys(names))

    def open(self) -> None:
        """Put everything back."""
        undo, self._undo = self._undo, contextlib.ExitStack()
        self.closed = False
        undo.close()

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Put a value in the place of an attribute, or of a dictionary's entry, until the gate is opened."""
        if isinstance(owner, dict):
            self._undo.callback(owner.__setitem__, name, owner[name])
            owner[name] = value
            return
        if name in vars(owner):
            self._undo.callback(setattr, owner, name, getattr(owner, name))
        else:  # it is its class's
            self._undo.callback(delattr, owner, name)
        setattr(owner, name, value)

    def when_open(self, do: Callable[[], None]) -> None:
        """Do something when the gate is opened."""
        self._undo.callback(do)


def block_exit(shell: Any, gate: Gate) -> Iterator[str]:
    """Make this process end without exit functions and finalizers until the gate is opened."""
    gate.when_open(partial(atexit.unregister, end_without_exit_functions(shell)))
    yield from ()


def end_without_exit_functions(shell: Any) -> Callable[[], None]:
    """Make this process end without exit functions and finalizers, and return what is registered for that.

    One of the user's that saves a model would save an emptied one over a good file. Python calls first what was
    registered last, so what is registered while the state is away comes before all of them.
    """
    return atexit.register(partial(_end, shell))


def _end(shell: Any) -> None:
    with contextlib.suppress(Exception):
        shell.history_manager.writeout_cache()
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]  # None if there is none
    os._exit(0)
