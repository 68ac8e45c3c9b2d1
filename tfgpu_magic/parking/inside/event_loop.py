"""Finds what of the user's an asyncio loop would run while the gate is closed, which makes parking refuse.

The loop goes on, so that the kernel still hears its messages. What comes later comes from a message, which is blocked,
or from what the loop has waiting now: a task, a callback, a timer, a file that it watches, a signal.
Source: CPython 3.10 to 3.14, `asyncio/base_events.py`, `events.py`; tornado 6, `platform/asyncio.py`; pyzmq 27,
`eventloop/zmqstream.py`. There is no public way to see what a loop has waiting.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_KERNELS = frozenset({"ipykernel", "zmq", "tfgpu_magic"})
"""Packages whose callbacks are the kernel's own: they run user code only by a message, which is blocked."""


def waiting(loop: Any) -> Iterator[str]:
    """Give the names of what a loop has waiting that is not the kernel's."""
    if not isinstance(loop, asyncio.BaseEventLoop):
        yield f"event loop {type(loop).__module__}.{type(loop).__qualname__}"
        return
    for task in asyncio.all_tasks(loop):
        if _root_of_task(task) not in _KERNELS | {"IPython"}:  # whose are cells, which are seen otherwise
            yield f"task {_called(task.get_coro())}"
    watched = {one for key in list(loop._selector.get_map().values()) for one in key.data if one}  # type: ignore[attr-defined]
    for handle in watched:
        if not _is_kernels_reader(handle):
            yield f"callback {_called(handle._callback)}"
    for handle in (*loop._scheduled, *loop._ready):  # type: ignore[attr-defined]
        if handle not in watched and not handle.cancelled() and not _is_kernels(handle):
            yield f"callback {_called(handle._callback)}"
    for number, handle in getattr(loop, "_signal_handlers", {}).items():
        if not _is_kernels(handle):
            yield f"handler of {getattr(number, 'name', f'signal {number}')}"


def runs_cell(loop: Any) -> bool:
    """Tell whether a cell is suspended in a loop: one that awaits something."""
    codes = (getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks(loop))
    return any(getattr(code, "co_name", "") == "run_cell_async" for code in codes)


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
    """Tell whether a callback runs none of the user's code, or what it does so by is seen as a task."""
    callback, args = handle._callback, handle._args or ()
    if root_of(callback) == "tornado" and args:  # it calls what it was given
        callback = args[0]
    return isinstance(getattr(callback, "__self__", None), asyncio.Task) or root_of(callback) in _KERNELS | {"asyncio"}


def root_of(callback: Any) -> str:
    """Return the package whose code a callback runs first; empty where that is not known."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    names = getattr(getattr(callback, "__func__", callback), "__globals__", {})
    return str(names.get("__name__", "")).partition(".")[0]


def _root_of_task(task: asyncio.Task[Any]) -> str:
    frame = getattr(task.get_coro(), "cr_frame", None)
    return "" if frame is None else str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _called(what: Any) -> str:
    while isinstance(what, functools.partial):
        what = what.func
    return str(getattr(what, "__qualname__", None) or type(what).__qualname__)
