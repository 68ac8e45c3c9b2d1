"""Ends a process that is told to end while its GPU state is away, before exit functions and finalizers run.

They are the user's and the frameworks': one that saves a model would save an emptied one over a good file. What Python
calls at its end is called in the reverse order; so a function that is registered when the gate closes is called first.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from tfgpu_magic.parking.inside.gate import Gate


def block(shell: Any, gate: Gate) -> Iterator[str]:
    """Have this process end at once where Python would call exit functions; there is nothing that cannot be blocked."""
    end = partial(_end, shell)
    atexit.register(end)
    gate.when_open(partial(atexit.unregister, end))
    yield from ()


def _end(shell: Any) -> None:
    with contextlib.suppress(Exception):
        shell.history_manager.writeout_cache()
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]  # None where there is none
    os._exit(0)
