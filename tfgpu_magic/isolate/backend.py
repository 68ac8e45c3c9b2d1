"""What runs the calls of an executor: a seam, behind which are this machine and clusters; and the way to submit one."""

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
    """Whether calls are still taken.

    Attributes:
        changed: is held to change that, or which calls there are, and notified of it.
        closed: whether no more are taken.
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
            raise RuntimeError(f"cannot schedule new futures after{at} shutdown")  # as the standard library says it


class Backend(Protocol):
    """Runs calls. Any thread may use it.

    Attributes:
        door: whether it takes more of them.
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
        """Take no more calls; those that it has go on to their end.

        Args:
            wait: whether to return only then.
            cancel: whether those that have not begun are cancelled.
        """

    def end(self, times: int) -> None:
        """Take no more calls, cancel what waits, and stop what runs, so many times: what is asked twice is killed."""


def submit(
    backend: Backend,
    function: Callable[..., T],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    reduce: Reduce | None = None,
) -> CallFuture[T]:
    """Have a function called as everything is now: what becomes of its arguments while it waits is not its affair.

    Args:
        backend: runs it.
        function: what is called.
        args: with what.
        kwargs: and by name.
        reduce: a special way to pickle some objects.

    Returns:
        The future of its value; where the call cannot be sent, one that raises `Unpicklable`.

    Raises:
        RuntimeError: the backend takes no more calls.
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
