"""Where an isolated cell or call lets itself be parked: `make_way`, which its own code calls.

User code runs in it all the time, so nobody else could choose a moment at which nothing of it is in CUDA. Whoever calls
`make_way` is in no call of the driver; all else that may call it is held, or found and refused. The caller, outside,
has the process parked and brought back, and the function returns only when it is known that the state is there.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from tfgpu_magic.config import cuda
from tfgpu_magic.isolate.process import inside, interrupt, wire
from tfgpu_magic.isolate.process.order import AWAY, BACK, POINT, YES
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.inside import facts, threads
from tfgpu_magic.parking.inside.gate import Gate, NotBack, Way

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from tfgpu_magic.parking.checks import Inside

EVERY = 1.0
"""Seconds between two questions to the caller, however often the function is called."""
FINISH_TIMEOUT, QUIET_TIMEOUT = 10.0, 2.0
"""Seconds in which the GPUs do what they were given before, and in which a report of ours is made."""

_PIPELINE = "a Python function in a tf.data pipeline or a graph"

_asked_at = float("-inf")


def make_way() -> bool:
    """Let this isolated cell or call be parked here, if the room that it has on a GPU is wanted.

    Call it again and again where the program is between two steps: at the end of an epoch or a batch. It asks the
    notebook at most once a second, and returns at once where nobody wants the room. Else what the process holds of the
    GPUs goes to host memory, and the function returns when all of it is back. Outside of isolated cells and calls it
    does nothing.

    Returns:
        Whether it was parked.

    Examples:
        ``model.fit(x, y, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: make_way())])``
    """
    global _asked_at
    connection = inside.connection
    if connection is None or time.monotonic() - _asked_at < EVERY or not inside.ASKING.acquire(blocking=False):
        return False
    try:
        with interrupt.put_off():
            return _ask(connection, POINT, tuple(cuda.pools())) and _away(connection)
    except ConnectionError:  # which ends this process, too
        return False
    finally:
        _asked_at = time.monotonic()
        inside.ASKING.release()


def _away(connection: socket.socket) -> bool:
    """Have this process parked, and return when its state is there; tell whether it was away."""
    if threading.current_thread() is not threading.main_thread():  # which goes on, and cannot be held
        was = _ask(connection, AWAY, why.THREADS((threading.main_thread().name,)))
        wire.send(connection, BACK)
        return was
    pipelines = _pipelines()
    gate = Gate(_stays, (threads.hold,))
    with _handlers_held():
        try:
            was = _parked(connection, _quiet((*pipelines, *gate.close())))
        finally:
            cuda.wake()
            gate.open()
        wire.send(connection, BACK)
    return was


def _parked(connection: socket.socket, what: Inside | why.Refusal) -> bool:
    """Have this process parked, which is quiet; return when its state is there."""
    try:
        return _ask(connection, AWAY, what)
    except BaseException:  # nobody says that the state is there, and what Python does at the end may call CUDA
        os._exit(1)


def _quiet(cannot_be_held: tuple[str, ...]) -> Inside | why.Refusal:
    """Return what this process says of itself, when nothing of it calls the driver any more; else why not."""
    found = facts.of_call(cannot_be_held)
    return facts.quieten(FINISH_TIMEOUT, QUIET_TIMEOUT) or found


def _ask(connection: socket.socket, kind: str, what: object) -> bool:
    """Ask the caller, and wait for its answer.

    Raises:
        ConnectionError: the caller has gone, or has given this call up.
    """
    wire.send(connection, kind, [pickle.dumps(what)])
    while (reply := wire.receive(connection)) is not None:
        if reply.kind == kind:  # others are receipts of displays whose wait was left by an exception
            return bytes(reply.parts[0]) == YES
    raise ConnectionError


def _stays(_: Way) -> None:
    raise NotBack


def _pipelines() -> tuple[str, ...]:
    """Return a name if TensorFlow may call a Python function at any time, in threads that Python does not know."""
    operations: Any = sys.modules.get("tensorflow.python.ops.script_ops")
    if operations is None:
        return ()
    functions = getattr(getattr(operations, "_py_funcs", None), "_funcs", None)  # None: another TensorFlow
    if functions:
        gc.collect()  # those of pipelines that have ended
    return () if functions is not None and not len(functions) else (_PIPELINE,)


@contextlib.contextmanager
def _handlers_held() -> Iterator[None]:
    """Have handlers of signals run after the block: they are the user's, and run in the main thread at any time."""
    came: list[int] = []
    numbers = sorted(signal.valid_signals())
    before = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for one in dict.fromkeys(came):
        signal.raise_signal(one)
