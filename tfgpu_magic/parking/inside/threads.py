"""Finds the threads of this process that may call CUDA at any time, and puts timers off.

A thread that runs code of the user's cannot be held. One of the kernel's, of a library that never uses a GPU, or of a
pool that has nothing to do, needs not be: what it is given to do comes through the gate.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, TypeGuard

from tfgpu_magic.parking.inside.gate import NotBack, Way

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tfgpu_magic.parking.inside.gate import Gate

_HARMLESS = frozenset(
    {
        "IPython", "_pydev_bundle", "_pydevd_bundle", "debugpy", "decorator", "ipykernel", "jupyter_client", "pydevd",
        "tensorboard", "tfgpu_magic", "tornado", "tqdm", "wandb", "zmq",
    }
)  # fmt: skip
"""Packages whose threads call no CUDA by themselves."""

_REPORTS = ("tfgpu_magic-reporter", "tfgpu_magic-top")
"""Our threads that ask the frameworks for their figures; `config.cuda` keeps them from the driver meanwhile."""

_ITIMERS = {
    "signal.ITIMER_REAL": signal.ITIMER_REAL,
    "signal.ITIMER_VIRTUAL": signal.ITIMER_VIRTUAL,
    "signal.ITIMER_PROF": signal.ITIMER_PROF,
}
"""Timers whose signals have a handler of the user's run in the main thread, whatever that does then."""

_POOL = "concurrent.futures.thread"
"""The module whose threads do what they are given."""


def hold(gate: Gate) -> Iterator[str]:
    """Put timers off, and give the names of the threads that cannot be held, and of timers that signals make go off."""
    yield from (name for name, kind in _ITIMERS.items() if signal.getitimer(kind)[0])
    for thread in threading.enumerate():
        if _is_timer(thread):
            _put_off(thread, gate)
    frames, ours = sys._current_frames(), (threading.current_thread(), threading.main_thread())
    for thread in threading.enumerate():
        if thread not in ours and not _is_harmless(thread, frames.get(thread.ident or 0)):
            yield thread.name


def runs_cell(thread: threading.Thread) -> bool:
    """Tell whether a thread runs a cell now, however deep: some let an event loop run within it."""
    frame = sys._current_frames().get(thread.ident or 0)
    return any(
        one.f_code.co_name == "run_code" and _module(one) == "IPython.core.interactiveshell" for one in _chain(frame)
    )


def _put_off(timer: threading.Timer, gate: Gate) -> None:
    """Have a timer wait, where it is due, until the state is back: it is a thread of its own, which may."""
    function = timer.function

    def held(*args: Any, **options: Any) -> Any:
        while gate.closed:
            try:
                gate.come(Way.MESSAGE)
            except NotBack:
                timer.finished.wait(1.0)
                if timer.finished.is_set():  # it was cancelled meanwhile
                    return None
        return function(*args, **options)

    gate.replace(timer, "function", held)


def _is_harmless(thread: threading.Thread, frame: FrameType | None) -> bool:
    if thread.name in _REPORTS or frame is None:  # without a frame it has ended, or is a library's that ran Python once
        return True
    if _is_timer(thread):
        return any(_waits_for_its_time(one) for one in _chain(frame))
    if frame.f_code.co_name == "_worker" and _module(frame) == _POOL:  # no job runs in it
        return True
    roots = {_module(one).partition(".")[0] for one in _chain(frame)}
    return bool(roots & _HARMLESS) and roots <= _HARMLESS | sys.stdlib_module_names


def _is_timer(thread: threading.Thread) -> TypeGuard[threading.Timer]:
    return isinstance(thread, threading.Timer) and type(thread).run is threading.Timer.run


def _waits_for_its_time(frame: FrameType) -> bool:
    """Tell whether a frame is that of a timer's thread at its first line, where it waits."""
    return frame.f_code is threading.Timer.run.__code__ and frame.f_lineno == frame.f_code.co_firstlineno + 1


def _chain(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
