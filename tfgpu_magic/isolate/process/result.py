"""What came of a call, in its process, as it is sent: parts that its caller makes objects of again."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfgpu_magic.isolate.process.order import Order
from tfgpu_magic.isolate.values import failure, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a call ended.

    Attributes:
        values: what it gives.
        error: what it raised; empty where it raised nothing.
        apart: makes the same in pieces that stand by themselves, for a caller that could not take it as a whole; None
            where it is in one piece.
    """

    values: Sequence[memoryview] = ()
    error: Sequence[memoryview] = ()
    apart: Callable[[], Result] | None = None


Runner = Callable[[socket.socket, Order, Sequence[memoryview]], Result]
"""Runs the work of a call: its connection, its order, and the parts that its caller pickled."""


def raised(error: BaseException, *, skip: int = 0, shown: Sequence[str] = ()) -> tuple[memoryview, ...]:
    """The parts of an exception; see `failure.capture`.

    Args:
        error: the exception.
        skip: how many frames of its traceback are ours.
        shown: the traceback as IPython shows it.
    """
    told, pickled = failure.capture(error, skip=skip, shown=shown, reduce=plain.reduce)
    return memoryview(pickle.dumps(told)), *pickled.parts
