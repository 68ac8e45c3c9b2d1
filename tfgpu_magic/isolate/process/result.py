"""The result of a call as its process sends it: pickled parts, which its caller unpickles."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfgpu_magic.isolate.values import failure, plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a call ended.

    Attributes:
        values: the parts of what it returns.
        error: the parts of what it raised; empty where it raised nothing.
        apart: makes the same in self-contained pieces, for a caller that could not unpickle it as a whole; None where
            it is in one piece.
    """

    values: Sequence[memoryview] = ()
    error: Sequence[memoryview] = ()
    apart: Callable[[], Result] | None = None


Runner = Callable[[socket.socket, Sequence[memoryview]], Result]
"""Runs the work of a call: its connection, and the parts that its caller pickled."""


def raised(error: BaseException, *, skip: int = 0, shown: Sequence[str] = ()) -> tuple[memoryview, ...]:
    """Return the parts of an exception; see `failure.capture`.

    Args:
        error: the exception.
        skip: how many frames of its traceback are ours.
        shown: the traceback as IPython shows it.
    """
    captured, pickled = failure.capture(error, skip=skip, shown=shown, reduce=plain.reduce)
    return memoryview(pickle.dumps(captured)), *pickled.parts
