"""Puts off what an asyncio loop has waiting, callbacks, timers and tasks' next steps, until the gate is opened.

The loop itself goes on, so that the kernel still hears its messages. A task that waits is woken by a timer, which is
put off; by a thread, which makes parking refuse; by a message, which is blocked; or by a file, and what the loop
watches for anybody but the kernel cannot be blocked. What comes later comes from one of these.
Source: CPython 3.10 to 3.14, `asyncio/base_events.py`, `events.py`; tornado 6, `platform/asyncio.py`; pyzmq 27,
`eventloop/zmqstream.py`. There is no public way to see what a loop has waiting.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any

from tfgpu_magic.parking.inside.gate import Caller, NotBack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgpu_magic.parking.inside.gate import Gate

    Do = Callable[[Callable[[], None]], None]

_KERNELS = frozenset({"ipykernel", "zmq", "tfgpu_magic"})
"""Packages whose callbacks are the kernel's own: they run user code only by a message, which is blocked."""


def block(loop: Any, gate: Gate, in_background: Do) -> Iterator[str]:
    """Put off all that a loop has waiting, and give the names of what cannot be put off.

    Args:
        loop: the loop.
        gate: the gate.
        in_background: does something on another thread.
    """
    if not isinstance(loop, asyncio.BaseEventLoop):
        yield f"event loop {type(loop).__module__}.{type(loop).__qualname__}"
        return
    watched = {one for key in _watched(loop) for one in key if one is not None}
    for handle in watched:
        if not _is_kernels_reader(handle):
            yield f"callback {_called(handle)}"
    waiting = _WaitingLoop(loop, gate, in_background)
    for handle in (*loop._scheduled, *loop._ready):  # type: ignore[attr-defined]
        if handle not in watched and not handle.cancelled() and not _is_kernels(handle):
            waiting.put_off(handle)
    for number, handle in getattr(loop, "_signal_handlers", {}).items():
        if not _is_kernels(handle):
            yield f"handler of {getattr(number, 'name', f'signal {number}')}"


def runs_cell(loop: Any) -> bool:
    """Tell whether a cell is suspended in a loop: one that awaits something."""
    return any(getattr(_code(task.get_coro()), "co_name", "") == "run_cell_async" for task in asyncio.all_tasks(loop))


class _WaitingLoop:
    """What one loop has waiting, and what of it was due while the gate was closed."""

    def __init__(self, loop: Any, gate: Gate, in_background: Do) -> None:
        self._loop, self._gate, self._in_background = loop, gate, in_background
        self._due: list[Any] = []
        self._asked = self._over = False
        self._turn = threading.Lock()  # the gate is opened on another thread than the loop's
        gate.when_open(self._do)

    def put_off(self, handle: Any) -> None:
        """Have nothing done when a handle is due but to bring the state back, for which the loop does not wait."""
        callback, args = handle._callback, handle._args

        def put_back() -> None:
            if not handle.cancelled():  # which forgets them
                handle._args, handle._callback = args, callback  # in this order: `due` takes any arguments

        def due(*_: object) -> None:
            with self._turn:
                late = self._over
                if not late:
                    self._due.append(handle)
                ask, self._asked = not late and not self._asked, True
            if late:  # the gate was opened when the loop had begun with it
                handle._run()
            elif ask:
                self._in_background(self._come)

        handle._callback, handle._args = due, ()
        self._gate.when_open(put_back)

    def _come(self) -> None:
        try:
            self._gate.come(Caller.MESSAGE)
        except NotBack:
            self._asked = False

    def _do(self) -> None:
        """Have the loop do what was due, in its order; this is undone last, when all callbacks are put back."""
        with self._turn:
            self._over = True
        for handle in self._due:
            if not handle.cancelled():
                self._loop.call_soon_threadsafe(handle._run)


def _watched(loop: Any) -> list[tuple[Any, Any]]:
    return [key.data for key in list(loop._selector.get_map().values())]


def _is_kernels_reader(handle: Any) -> bool:
    """Tell whether a loop watches a file for itself, or for a stream whose messages the kernel takes."""
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.AbstractEventLoop):
        return getattr(callback, "__name__", "") == "_read_from_self"
    handlers = getattr(owner, "handlers", None)  # tornado's
    if isinstance(handlers, dict) and handle._args and handle._args[0] in handlers:
        stream = getattr(handlers[handle._args[0]][1], "__self__", None)
        taker = getattr(stream, "_recv_callback", None)
        return type(stream).__module__.startswith("zmq.") and (taker is None or root_of(taker) in _KERNELS)
    return False


def _is_kernels(handle: Any) -> bool:
    callback, args = handle._callback, handle._args or ()
    if root_of(callback) == "tornado" and args:  # it calls what it was given
        callback = args[0]
    return root_of(callback) in _KERNELS


def root_of(callback: Any) -> str:
    """Return the package whose code a callback runs first; empty where that is not known."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        frame = getattr(owner.get_coro(), "cr_frame", None)
        names = {} if frame is None else frame.f_globals
    else:
        names = getattr(getattr(callback, "__func__", callback), "__globals__", {})
    return str(names.get("__name__", "")).partition(".")[0]


def _called(handle: Any) -> str:
    callback = handle._callback
    while isinstance(callback, functools.partial):
        callback = callback.func
    return str(getattr(callback, "__qualname__", None) or type(callback).__qualname__)


def _code(coroutine: Any) -> Any:
    return getattr(coroutine, "cr_code", None)
