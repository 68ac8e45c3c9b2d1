"""The end of this process, for executors: who has submitted calls may leave, and they go on; whom Ctrl-C ends may not.

Every executor of Python's waits at the end of a program for what was submitted to it. The exceptions are two: Ctrl-C is
for the calls too, as it is for the workers of a `ProcessPoolExecutor`, which hear it from the terminal; and a kernel
that is restarted or shut down is not to be kept from it.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Protocol

from tfgpu_magic.host import shell

begun = False
"""Whether this process is ending, so that no more calls are taken."""


class _Executor(Protocol):
    def shutdown(self, wait: bool = True) -> None: ...
    def terminate_workers(self) -> None: ...
    def kill_workers(self) -> None: ...


_EXECUTORS: weakref.WeakSet[_Executor] = weakref.WeakSet()


def add(executor: _Executor) -> None:
    """Have an executor's calls waited for, or ended, when this process ends."""
    _EXECUTORS.add(executor)


def _end() -> None:
    global begun
    begun = True
    executors = list(_EXECUTORS)
    try:
        if hasattr(shell(), "kernel"):
            for executor in executors:
                executor.kill_workers()
            return  # their processes see that this one has ended
        # The one that ends this program; where lines are typed in, it has ended one of them, a while ago.
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt) and not _is_typed():
            for executor in executors:
                executor.terminate_workers()
        for executor in executors:
            executor.shutdown()
    except KeyboardInterrupt:
        for executor in executors:
            executor.kill_workers()
        raise


def _is_typed() -> bool:
    return shell() is not None or hasattr(sys, "ps1") or bool(sys.flags.interactive)


os.register_at_fork(after_in_child=_EXECUTORS.clear)  # whose threads are not there
# As `concurrent.futures.thread` does: before `atexit`, whose handlers may use what the calls return.
threading._register_atexit(_end)  # type: ignore[attr-defined]
