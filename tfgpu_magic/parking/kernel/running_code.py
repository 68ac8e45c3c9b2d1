"""Finds what of the user's may run while the gate is closed and cannot be blocked: threads, signals, event loops.

A thread that runs code of the user's cannot be blocked (`isolate.user_code`). One of the kernel's, of a library that
never uses a GPU, or of a pool that has nothing to do, needs not be: what it is given to do comes through the gate. One
of ours that has waited for an isolated call waits for the state, too, before it runs what is the user's.

An event loop goes on, so that the kernel still hears its messages. What comes later comes from a message, which is
blocked, or from what the loop has waiting now: a task, a callback, a timer, a file that it watches, a signal.
Source: CPython 3.10 to 3.14, `asyncio/base_events.py`, `events.py`; tornado 6, `platform/asyncio.py`; pyzmq 27,
`eventloop/zmqstream.py`. There is no public way to see what a loop has waiting.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from tfgpu_magic.isolate import user_code
from tfgpu_magic.isolate.user_code import HARMLESS, frames, module_of
from tfgpu_magic.parking.kernel.gate import Gate, StillParked

_ITIMERS = ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")
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
_KERNELS = frozenset({"ipykernel", "zmq", "tfgpu_magic"})
"""Packages whose callbacks are the kernel's own: they run user code only by a message, which is blocked."""


def block(shell: Any, gate: Gate) -> Iterator[str]:
    """Yield the names of threads that cannot be blocked, of what signals set off, and of what loops have waiting."""
    gate.replace(user_code, "wait", functools.partial(_wait, gate))
    yield from (f"signal.{name}" for name in _ITIMERS if signal.getitimer(getattr(signal, name))[0])
    yield from (f"handler of {name}" for name in _handled())
    timers = {one.name for one in threading.enumerate() if isinstance(one, threading.Timer)}
    yield from timers - {"tfgpu_magic-idle-release"} | {*user_code.other_threads()}
    for loop in _loops(shell):
        yield from waiting_in(loop)


def cell_runs(shell: Any) -> bool:
    """Return whether a cell runs now, however deep: some let an event loop run within them, some wait for it.

    The cell of this thread has ended when its code has. Another one's, or a widget's callback, may begin at any time.
    """
    ours = threading.get_ident()
    for ident, frame in sys._current_frames().items():
        known = _RUNS_CODE if ident == ours else _RUNS_CELL
        if any((one.f_code.co_name, module_of(one)) in known for one in frames(frame)):
            return True
    tasks = (task.get_coro() for loop in _loops(shell) for task in asyncio.all_tasks(loop))
    return any(getattr(getattr(task, "cr_code", None), "co_name", "") == "run_cell_async" for task in tasks)


def _loops(shell: Any) -> list[Any]:
    """Return the event loops in which a kernel runs user code: the main one, and those of subshells."""
    subshells = [one for one in threading.enumerate() if one.name.startswith("subshell-")]
    running: list[Any] = [one for one in (getattr(shell, "kernel", None), *subshells) if hasattr(one, "io_loop")]
    return [getattr(one.io_loop, "asyncio_loop", one.io_loop) for one in running]


def _handled() -> Iterator[str]:
    """Yield the signals at which Python runs a handler of the user's in the main thread, but for Ctrl-C's."""
    for number in signal.valid_signals() - {signal.SIGINT}:
        handler = signal.getsignal(number)
        root = package_of(handler)
        if callable(handler) and root not in HARMLESS | _HANDLE_NO_GPU and root not in sys.stdlib_module_names:
            yield getattr(number, "name", f"signal {number}")


def _wait(gate: Gate) -> None:
    """Wait on this thread until the state is back."""
    while gate.closed:
        try:
            gate.come()
        except StillParked:
            time.sleep(1.0)


def waiting_in(loop: Any) -> Iterator[str]:
    """Yield the names of what a loop has waiting that is not the kernel's."""
    if not isinstance(loop, asyncio.BaseEventLoop):
        yield f"event loop {type(loop).__module__}.{type(loop).__qualname__}"
        return
    for task in asyncio.all_tasks(loop):
        if _package_of_task(task) not in _KERNELS | {"IPython"}:  # whose are cells, which are seen otherwise
            yield f"task {_name_of(task.get_coro())}"
    watched = {one for key in list(loop._selector.get_map().values()) for one in key.data if one}  # type: ignore[attr-defined]
    for handle in watched:
        if not _is_kernels_reader(handle):
            yield f"callback {_name_of(handle._callback)}"
    for handle in (*loop._scheduled, *loop._ready):  # type: ignore[attr-defined]
        if handle not in watched and not handle.cancelled() and not _is_kernels(handle):
            yield f"callback {_name_of(handle._callback)}"
    for number, handle in getattr(loop, "_signal_handlers", {}).items():
        if not _is_kernels(handle):
            yield f"handler of {getattr(number, 'name', f'signal {number}')}"


def _is_kernels_reader(handle: Any) -> bool:
    """Return whether a loop watches a file for itself, or for a stream whose messages the kernel takes."""
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.AbstractEventLoop):
        return getattr(callback, "__name__", "") == "_read_from_self"
    handlers = getattr(owner, "handlers", None)  # tornado's
    if isinstance(handlers, dict) and handle._args and handle._args[0] in handlers:
        stream = getattr(handlers[handle._args[0]][1], "__self__", None)
        taker = getattr(stream, "_recv_callback", None)
        return type(stream).__module__.startswith("zmq.") and (taker is None or package_of(taker) in _KERNELS)
    return False


def _is_kernels(handle: Any) -> bool:
    """Return whether a callback runs no user code itself, or runs it in an asyncio task, which is seen as one."""
    callback, args = handle._callback, handle._args or ()
    if package_of(callback) == "tornado" and args:  # it calls what it was given
        callback = args[0]
    is_task = isinstance(getattr(callback, "__self__", None), asyncio.Task)
    return is_task or package_of(callback) in _KERNELS | {"asyncio"}


def package_of(callback: Any) -> str:
    """Return the package whose code a callback runs first; empty if that is not known."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    names = getattr(getattr(callback, "__func__", callback), "__globals__", {})
    return str(names.get("__name__", "")).partition(".")[0]


def _package_of_task(task: asyncio.Task[Any]) -> str:
    frame = getattr(task.get_coro(), "cr_frame", None)
    return "" if frame is None else str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _name_of(what: Any) -> str:
    while isinstance(what, functools.partial):
        what = what.func
    return str(getattr(what, "__qualname__", None) or type(what).__qualname__)
