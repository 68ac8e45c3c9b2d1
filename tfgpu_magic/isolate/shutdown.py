"""Ends the backends at the end of this process: submitted calls are waited for, or stopped after Ctrl-C.

Every executor of Python's waits at the end of a program for what was submitted to it. There are two exceptions: Ctrl-C
also stops the calls, as it stops the workers of a `ProcessPoolExecutor`, which get it from the terminal; and a kernel
that is restarted or shut down does not wait, and kills its calls.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Protocol

from tfgpu_magic.host import shell

begun = False
"""Whether this process is ending, so that no more calls are accepted."""


class _Backend(Protocol):
    def shutdown(self, *, wait: bool, cancel: bool) -> None: ...
    def end(self, *, kill: bool) -> None: ...


_BACKENDS: weakref.WeakSet[_Backend] = weakref.WeakSet()


def add(backend: _Backend) -> None:
    """Register a backend, whose calls are waited for, or stopped, when this process ends."""
    _BACKENDS.add(backend)


def _end() -> None:
    global begun
    begun = True
    backends = list(_BACKENDS)
    try:
        if hasattr(shell(), "kernel"):
            for backend in backends:
                backend.end(kill=True)
            return  # the calls' processes see that this one has ended
        # The Ctrl-C that ends this program. Where lines are typed in, it has only ended one of them, a while ago.
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt) and not _is_typed():
            for backend in backends:
                backend.end(kill=False)
        for backend in backends:
            backend.shutdown(wait=True, cancel=False)
    except KeyboardInterrupt:
        for backend in backends:
            backend.end(kill=True)
        raise


def _is_typed() -> bool:
    return shell() is not None or hasattr(sys, "ps1") or bool(sys.flags.interactive)


os.register_at_fork(after_in_child=_BACKENDS.clear)  # the backends' threads are not there
# As `concurrent.futures.thread` does: before `atexit`, whose handlers may use what the calls return.
threading._register_atexit(_end)  # type: ignore[attr-defined]
