"""Finds the threads of this process that may call CUDA at any time, and puts timers off.

A thread that runs code of the user's cannot be held. One of the kernel's, of a library that never uses a GPU, or of a
pool that has nothing to do, needs not be: what it is given to do comes through the gate.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

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

_POOL = "concurrent.futures.thread"
"""The module whose threads do what they are given."""


def hold(gate: Gate) -> Iterator[str]:
    """Put timers off, and give the names of the threads that cannot be held."""
    frames = sys._current_frames()  # before the timers: one that fires meanwhile is seen, or put off
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and type(thread).run is threading.Timer.run:
            _put_off(thread, gate)
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread is threading.main_thread():
            continue
        frame = sys._current_frames().get(thread.ident or 0)
        if not _is_harmless(thread, frame or frames.get(thread.ident or 0)):
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
    if isinstance(thread, threading.Timer) and type(thread).run is threading.Timer.run:
        return _idle(frame, "threading")
    if thread.name in _REPORTS:
        return True
    if frame is None:  # no Python runs in it: it has ended, or it is a library's that has called Python once
        return True
    if getattr(thread, "is_pydev_daemon_thread", False) and _module(frame).partition(".")[0] in sys.stdlib_module_names:
        return True
    modules = {_module(one) for one in _chain(frame)}
    roots = {name.partition(".")[0] for name in modules}
    if not roots <= _HARMLESS | sys.stdlib_module_names or "__main__" in roots:
        return False
    return bool(roots & _HARMLESS) or (_POOL in modules and _idle(frame, _POOL))


def _idle(frame: FrameType | None, module: str) -> bool:
    """Tell whether a thread only waits for its time, or for what it will be given: both are called by a `run`."""
    here = ("threading", module)
    return frame is None or (frame.f_code.co_name != "run" and all(_module(one) in here for one in _chain(frame)))


def _chain(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
