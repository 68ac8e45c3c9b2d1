"""Where threads of ours run user code at the end of a call: its future's callbacks, and what makes its value again.

While the notebook's GPU state is away `parking` puts a function that waits for it in the place of `wait`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

threads: set[int] = set()
"""The threads that run such code, or are about to."""


def wait() -> None:
    """Wait until user code may run, which it always may while nothing is in the place of this function."""


_never_waits = wait


@contextlib.contextmanager
def at_once() -> Iterator[bool]:
    """Give whether user code may run in the block, on this thread, without waiting.

    Where a call's process is still there, a wait could last for ever: for the room that this process holds.
    """
    ident = threading.get_ident()
    threads.add(ident)  # before it is asked: who holds user code back from now on finds it here, or is waited for
    try:
        yield wait is _never_waits
    finally:
        threads.discard(ident)


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Run user code in the block, on this thread, as soon as it may. The call's process has ended: its room is free."""
    with at_once():
        wait()
        yield
