"""Blocks user code while this process's GPU state is away: a gate on every way into it, until the state is back.

An operation while the state is away would compute from emptied arrays, so nothing of the user's may run before. Each
way in puts a function of ours in the place of one of IPython's, of the kernel's or of ours; when the gate is opened,
all is as it was (`ipython`). What has no such way in makes parking refuse (`unblocked`).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias


class NotBack(Exception):
    """The GPU state is still away; the text says why, and what to do next."""


Block: TypeAlias = Callable[["Gate"], Iterator[str]]
"""Puts what blocks one way in through a gate; gives the names of what cannot be blocked, and may use the GPU."""


class Gate:
    """The gate of this process, with the ways in that it blocks.

    What is blocked calls `come`, in any thread, which brings the state back and returns, or raises `NotBack`. With
    `in_cell` it is for a cell, below which its wait is shown.
    """

    def __init__(self, come: Callable[..., None], blocks: Sequence[Block]) -> None:
        self.come = come
        self._blocks = blocks
        self._undo = contextlib.ExitStack()
        self.closed = False

    def close(self) -> tuple[str, ...]:
        """Block every way in from now on, and return the names of what cannot be blocked."""
        self.closed = True
        if gc.isenabled():  # so that no finaliser of the user's runs, on whatever thread
            gc.disable()
            self._undo.callback(gc.enable)
        names: list[str] = []
        for block in self._blocks:
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
        own = vars(owner) if hasattr(owner, "__dict__") else None
        if own is None or name in own:
            self._undo.callback(setattr, owner, name, getattr(owner, name))
        else:  # it is its class's
            self._undo.callback(delattr, owner, name)
        setattr(owner, name, value)

    def when_open(self, do: Callable[[], None]) -> None:
        """Do something when the gate is opened."""
        self._undo.callback(do)
