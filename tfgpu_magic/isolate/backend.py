"""The interface to what runs submitted calls, `local` or `cluster`; and the function that submits one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.isolate import shutdown
from tfgpu_magic.isolate.future import CallFuture
from tfgpu_magic.isolate.values import copies, pickling
from tfgpu_magic.isolate.values.pickling import Reduce

T = TypeVar("T")

ENDED = "The call was ended, because all calls of its executor were."
STOPPED = "The call was stopped."


class Door:
    """The entry of a backend: whether it still accepts calls.

    Attributes:
        changed: the condition that is held to change `closed` or the set of calls, and notified of it.
        closed: whether no more calls are accepted.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.closed = False

    def check(self) -> None:
        """Refuse a call that comes too late.

        Raises:
            RuntimeError: it does.
        """
        if self.closed or shutdown.begun:
            at = " interpreter" * shutdown.begun
            raise RuntimeError(f"cannot schedule new futures after{at} shutdown")  # the standard library's text


class Backend(Protocol):
    """What runs calls. Thread-safe.

    Attributes:
        door: whether it accepts more calls.
        most: how many run at once; None is all.
    """

    door: Door
    most: int | None

    def add(self, call: CallFuture[Any]) -> None:
        """Run a call, when there is room for it.

        Raises:
            RuntimeError: the door is closed.
        """

    def shutdown(self, *, wait: bool, cancel: bool) -> None:
        """Accept no more calls; those that it has go on to their end.

        Args:
            wait: whether to return only then.
            cancel: whether those that have not begun are cancelled.
        """

    def end(self, *, kill: bool) -> None:
        """Accept no more calls, cancel those that wait, and interrupt or kill those that run."""


def submit(
    backend: Backend,
    function: Callable[..., T],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    reduce: Reduce | None = None,
) -> CallFuture[T]:
    """Submit a call with its arguments as they are now: a change to them while the call waits does not reach it.

    Args:
        backend: what runs the call.
        function: the function to call.
        args: its positional arguments.
        kwargs: its keyword arguments.
        reduce: a special way to pickle some objects.

    Returns:
        The future of its value; if the call cannot be sent, a future that raises `Unpicklable`.

    Raises:
        RuntimeError: the backend accepts no more calls.
    """
    call: CallFuture[T] = CallFuture(pickling.name_of(function))
    backend.door.check()
    try:
        call.work = copies.copied(pickling.dump_call(function, args, kwargs, reduce=reduce))
    except Unpicklable as error:
        call.set_exception(error)
    else:
        backend.add(call)
    return call
