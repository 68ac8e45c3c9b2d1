"""Which threads may run the user's code now: those of ours at the end of a call, and whatever else may call CUDA.

Ours run the future's callbacks, and what makes its value again. While the notebook's GPU state is away `parking` puts a
function that waits for it in the place of `wait`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

NAMELESS = "a thread without a name"
"""One that a library has started, and that runs Python now: `tf.data` for a generator, say."""

HARMLESS = frozenset(
    {
        "IPython", "_pydev_bundle", "_pydevd_bundle", "debugpy", "decorator", "ipykernel", "jupyter_client",
        "jupyter_core", "nest_asyncio", "nest_asyncio2", "opentelemetry", "prompt_toolkit", "pydevd", "tensorboard",
        "tfgpu_magic", "tornado", "tqdm", "traitlets", "wandb", "zmq",
    }
)  # fmt: skip
"""Packages whose threads call no CUDA by themselves."""

_LOOPS = frozenset({"nest_asyncio", "nest_asyncio2", "tornado"})
"""Those of them that run what they are given: a thread of the user's may have nothing else on its stack."""

_OURS = ("tfgpu_magic-reporter", "tfgpu_magic-top", "tfgpu_magic-idle-release", "tfgpu_magic-park")
"""Our threads that move memory, or ask the frameworks for figures: `frameworks.cuda` keeps those from the driver."""

_LAUNCHERS = frozenset({"__main__", "runpy"})
"""Modules of the main thread's outermost functions, which are not the user's."""

_POOL = "concurrent.futures.thread"
"""The module whose threads do what they are given."""

threads: set[int] = set()
"""The threads of ours that run it at the end of a call, or are about to."""


def wait() -> None:
    """Wait until user code may run, which it always may while nothing is in the place of this function."""


_never_waits = wait


@contextlib.contextmanager
def at_once() -> Iterator[bool]:
    """Yield whether user code may run in the block, on this thread, without waiting.

    While a call's process is still there, a wait could last for ever: for the memory that this process holds.
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


def other_threads() -> Iterator[str]:
    """Yield the names of the other threads that may call CUDA now; a waiting timer does so later."""
    known = {thread.ident: thread for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # a thread that is not known was not started by `threading`
        harmless = ident not in threads and _is_harmless(known.get(ident), frame)
        if ident != threading.get_ident() and not harmless:
            yield known[ident].name if ident in known else NAMELESS


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that it was called from."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def module_of(frame: FrameType) -> str:
    """Return the name of the module whose function a frame runs."""
    return str(frame.f_globals.get("__name__", ""))


def _is_harmless(thread: threading.Thread | None, frame: FrameType) -> bool:
    if thread is not None and thread.name in _OURS:
        return True
    if frame.f_code.co_name == "_worker" and module_of(frame) == _POOL:  # no job runs in it
        return True
    run = threading.Timer.run.__code__
    if any(one.f_code is run and one.f_lineno == run.co_firstlineno + 1 for one in frames(frame)):  # it waits there
        return True
    modules = [module_of(one).partition(".")[0] for one in frames(frame)]
    while thread is threading.main_thread() and modules and modules[-1] in _LAUNCHERS:
        modules.pop()
    roots = set(modules)
    return bool(roots & (HARMLESS - _LOOPS)) and roots <= HARMLESS | sys.stdlib_module_names
