"""Finds the threads of this process that may call CUDA at any time, and signals' handlers; puts timers off.

A thread that runs code of the user's cannot be held. One of the kernel's, of a library that never uses a GPU, or of a
pool that has nothing to do, needs not be: what it is given to do comes through the gate. One of ours that has waited
for an isolated call waits for the state, too, before it runs what is the user's (`isolate.user_code`).
"""

from __future__ import annotations

import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

from tfgpu_magic.isolate import user_code
from tfgpu_magic.parking.inside.event_loop import root_of
from tfgpu_magic.parking.inside.gate import NotBack, Way

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tfgpu_magic.parking.inside.gate import Gate

NAMELESS = "a thread without a name"
"""One that a library has started, and that runs Python now: `tf.data` for a generator, say."""

_HARMLESS = frozenset(
    {
        "IPython", "_pydev_bundle", "_pydevd_bundle", "debugpy", "decorator", "ipykernel", "jupyter_client",
        "nest_asyncio", "nest_asyncio2", "prompt_toolkit", "pydevd", "tensorboard", "tfgpu_magic", "tornado", "tqdm",
        "traitlets", "wandb", "zmq",
    }
)  # fmt: skip
"""Packages whose threads call no CUDA by themselves."""

_REPORTS = ("tfgpu_magic-reporter", "tfgpu_magic-top")
"""Our threads that ask the frameworks for their figures; `frameworks.cuda` keeps them from the driver meanwhile."""

_ITIMERS = {
    "signal.ITIMER_REAL": signal.ITIMER_REAL,
    "signal.ITIMER_VIRTUAL": signal.ITIMER_VIRTUAL,
    "signal.ITIMER_PROF": signal.ITIMER_PROF,
}
"""Timers whose signals have a handler of the user's run in the main thread, whatever that does then."""

_HANDLE_NO_GPU = frozenset({"torch"})
"""More packages whose handlers of signals call no CUDA: PyTorch's looks whether a process that loads data has died."""

_RUNS_CODE = frozenset({("run_code", "IPython.core.interactiveshell")})
"""Functions that run a cell's code, and their modules."""

_RUNS_CELL = _RUNS_CODE | {
    ("_run_cell", "IPython.core.interactiveshell"),
    ("run_cell_async", "IPython.core.interactiveshell"),
    ("dispatch_shell", "ipykernel.kernelbase"),
}
"""The same, and those that are about to, or do what another message asks for."""

_LAUNCHERS = frozenset({"__main__", "runpy"})
"""Modules of the main thread's outermost functions, which are not the user's."""

_POOL = "concurrent.futures.thread"
"""The module whose threads do what they are given."""


def hold(gate: Gate) -> Iterator[str]:
    """Put timers off, and give the names of the threads that cannot be held, and of what signals set off."""
    gate.replace(user_code, "wait", partial(_waited, gate, threading.Event()))
    yield from (name for name, kind in _ITIMERS.items() if signal.getitimer(kind)[0])
    yield from (f"handler of {name}" for name in _handled())
    for thread in threading.enumerate():
        if _is_timer(thread):
            _put_off(thread, gate)
    yield from others()


def others() -> Iterator[str]:
    """Give the names of the threads beside this one that may call CUDA at any time."""
    known = {thread.ident: thread for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # a thread that is not known was not started by `threading`
        harmless = ident not in user_code.threads and _is_harmless(known.get(ident), frame)
        if ident != threading.get_ident() and not harmless:
            yield known[ident].name if ident in known else NAMELESS


def cell_runs() -> bool:
    """Tell whether a thread runs a cell now, however deep: some let an event loop run within it.

    The cell of this thread has ended when its code has. Another one's, or a widget's callback, may begin at any time.
    """
    ours = threading.get_ident()
    return any(
        (one.f_code.co_name, _module(one)) in (_RUNS_CODE if ident == ours else _RUNS_CELL)
        for ident, frame in sys._current_frames().items()
        for one in _chain(frame)
    )


def _handled() -> Iterator[str]:
    """Give the signals at which Python runs a handler of the user's in the main thread, but for Ctrl-C's."""
    for number in signal.valid_signals() - {signal.SIGINT}:
        handler = signal.getsignal(number)
        root = root_of(handler)
        if callable(handler) and root not in _HARMLESS | _HANDLE_NO_GPU and root not in sys.stdlib_module_names:
            yield getattr(number, "name", f"signal {number}")


def _put_off(timer: threading.Timer, gate: Gate) -> None:
    """Have a timer wait, where it is due, until the state is back: it is a thread of its own, which may."""
    function = timer.function

    def held(*args: Any, **options: Any) -> Any:
        return function(*args, **options) if _waited(gate, timer.finished) else None

    gate.replace(timer, "function", held)


def _waited(gate: Gate, cancelled: threading.Event) -> bool:
    """Wait on this thread until the state is back; return False if it was cancelled meanwhile."""
    while gate.closed:
        try:
            gate.come(Way.MESSAGE)
        except NotBack:
            if cancelled.wait(1.0):
                return False
    return True


def _is_harmless(thread: threading.Thread | None, frame: FrameType) -> bool:
    if thread is not None and thread.name in _REPORTS:
        return True
    if _is_timer(thread):
        return any(_waits_for_its_time(one) for one in _chain(frame))
    if frame.f_code.co_name == "_worker" and _module(frame) == _POOL:  # no job runs in it
        return True
    modules = [_module(one).partition(".")[0] for one in _chain(frame)]
    while thread is threading.main_thread() and modules and modules[-1] in _LAUNCHERS:
        modules.pop()
    roots = set(modules)
    return bool(roots & _HARMLESS) and roots <= _HARMLESS | sys.stdlib_module_names


def _is_timer(thread: threading.Thread | None) -> TypeGuard[threading.Timer]:
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
