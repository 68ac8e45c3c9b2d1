"""A call's process, just forked: it becomes what its order says, runs the call, answers and ends. Never returns."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import importlib
import io
import os
import pickle
import random
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tfgpu_magic.config import account
from tfgpu_magic.config.runtime import adopt
from tfgpu_magic.errors import Unpicklable, WorkerDied
from tfgpu_magic.isolate.process import inside, precision, station, wire
from tfgpu_magic.isolate.process.order import ANSWER_ME, APART, HEARD, LEAVE, RAISED, RETURNED, Facts, Order
from tfgpu_magic.isolate.process.shutdown import shut_down
from tfgpu_magic.isolate.values import failure, pickling, plain
from tfgpu_magic.isolate.values.guard import Unpickler
from tfgpu_magic.isolate.values.pickling import Pickled

Answer = tuple[str, Facts, Sequence[memoryview]]
"""How a call ended: `RETURNED` or `RAISED`, what is known of it, and the parts of what it gave."""

Runner = Callable[[socket.socket, Order, Sequence[memoryview]], Answer]
"""Runs the work of a call: its connection, its order, and the parts that its caller pickled."""


apart: Callable[[], Answer] | None = None
"""What makes the answer in pieces, where a runner can, for a caller that could not take it as a whole."""


def live(connection: socket.socket, crash: int) -> None:
    """Run the one call that comes over the connection; where none comes, its caller has thought better of it.

    Args:
        connection: where messages come and go.
        crash: the descriptor to say at where Python was when it crashed.
    """
    inside.running = True
    faulthandler.enable(crash, all_threads=False)
    with contextlib.suppress(ConnectionResetError):
        message = wire.receive(connection)
        if message is not None:
            order: Order = pickle.loads(message.parts[0])  # noqa: S301  # from our own kernel
            try:
                _run(connection, order)
            finally:
                shut_down(order.grace)
    _flush()


def call(connection: socket.socket, order: Order, work: Sequence[memoryview]) -> Answer:
    """Call a function: the runner of all calls of functions."""
    del connection
    try:
        function, arguments, keywords = pickling.load(work)
        value = function(*arguments, **keywords)
    except BaseException as error:  # also SystemExit: it ends the call, not us
        be_done()
        return _raised(error, skip=1)
    be_done()
    name = str(order.settings.get("name", "the call"))
    try:
        return RETURNED, Facts(), give(value, f"the result of {name}", order.imported).parts
    except Unpicklable as error:
        return _raised(error.with_traceback(None))  # of ours, and it says nothing


def be_done() -> None:
    """Let no interrupt undo what is done. It is heard all the same: a call that hears none is killed while it sends."""
    signal.signal(signal.SIGINT, lambda *_: None)


def give(value: object, name: str, imported: frozenset[str]) -> Pickled:
    """Pickle what the caller is to get: TensorFlow's objects as plain ones, and only what can be had there.

    Args:
        value: what to pickle.
        name: what people call it.
        imported: which of TensorFlow's packages the caller has imported.

    Raises:
        Unpicklable: it cannot be sent, or nothing could be made of it.
    """
    pickled = pickling.dump(value, name, reduce=plain.reduce, at_home=True)
    try:
        pickling.load(pickled.parts, functools.partial(Unpickler, modules=imported))
    except Unpicklable as error:
        raise Unpicklable(f"{name}: {error}") from None
    except Exception as error:  # whatever an object's own __setstate__ raises
        kind = type(value).__qualname__
        raise Unpicklable(f"{name}, a {kind}, can be pickled and not be made again of that ({error}).") from error
    return pickled


def _run(connection: socket.socket, order: Order) -> None:
    here = os.getpid()
    answer = _work(connection, order)
    if os.getpid() != here:
        os._exit(0)  # a fork that the call has let come to its end: it is the call's to answer
    if answer is None:
        return
    be_done()
    _flush()
    try:
        _send(connection, answer)
        while order.lingers and (said := wire.receive(connection)) is not None and said.kind != LEAVE:
            # Else a display that was interrupted has left behind what it waited for.
            if said.kind == APART and apart is not None:
                _send(connection, apart())
    except ConnectionError:  # nobody waits any more
        return
    except OSError as error:
        raise WorkerDied(
            f"No answer can be given ({error}): most likely the call has closed descriptors that were not its own."
        ) from None


def _send(connection: socket.socket, answer: Answer) -> None:
    kind, facts, parts = answer
    with contextlib.suppress(Exception):  # the call may have left this process in any state, and this is no answer
        facts = replace(facts, uses=account.brief().uses)
    try:
        wire.send(connection, kind, [pickle.dumps(facts), *parts])
    except ConnectionError:
        raise
    except OSError as error:  # no room for a large result
        kind, _, parts = _raised(error.with_traceback(None))
        facts = replace(facts, more={})  # which is about the parts that are not sent
        wire.send(connection, kind, [pickle.dumps(facts), *parts])


def _work(connection: socket.socket, order: Order) -> Answer | None:
    """What came of the order; None when there is no call to it."""
    try:
        _become(order)
        module, _, name = order.runner.partition(":")
        runner: Runner = getattr(importlib.import_module(module), name)
        work = wire.receive(connection)
        _answer_interrupts(connection)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # an interrupt that came early is raised here
        return None if work is None else runner(connection, order, work.parts)
    except BaseException as error:  # a refused policy, a directory that is gone, an interrupt that came early
        return _raised(error)


def _answer_interrupts(connection: socket.socket) -> None:
    """Say of each interrupt that it was heard: its handler has run, or runs, and it is a program that heeds it."""
    here = os.getpid()

    def heard(*_: object) -> None:
        if callable(signal.getsignal(signal.SIGINT)) and os.getpid() == here:  # a fork of ours is not the call
            with contextlib.suppress(OSError):
                wire.send(connection, HEARD)

    signal.signal(ANSWER_ME, heard)


def _become(order: Order) -> None:
    """Set this process up as if it had been started by the caller, where and as the caller is."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    adopt(order.environment)
    sys.path[:], sys.argv[:] = order.path, order.arguments
    importlib.invalidate_caches()
    os.chdir(order.directory)
    station.take(order.station)
    sys.stdout = sys.__stdout__ = _text(1)  # type: ignore[misc]  # it is no constant, and who uses it would be unheard
    sys.stderr = sys.__stderr__ = _text(2)  # type: ignore[misc]
    with contextlib.suppress(ValueError, AttributeError):
        libc = ctypes.CDLL(None)  # a C library's prints would wait in a buffer, because a pipe is no terminal
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)  # 1 is _IOLBF
    random.seed()
    if "numpy" in sys.modules:  # all calls are forks of one process, and would draw the same numbers
        sys.modules["numpy"].random.seed()
    precision.make(order.precision)
    if order.policy.requests:
        snapshot = order.snapshot
        order.apply(order.policy, **({} if snapshot is None else {"see": lambda: snapshot}))


class _Whole(io.FileIO):
    """A file that writes all it is given, where the system's own call may be cut short by a signal."""

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[super().write(rest) or 0 :]
        return memoryview(data).nbytes


def _text(descriptor: int) -> io.TextIOWrapper:
    """A stream that keeps nothing back: what a call prints before it dies must be seen."""
    whole: Any = _Whole(descriptor, "wb", closefd=False)  # a raw file, as Python's own streams have with -u
    return io.TextIOWrapper(whole, encoding="utf-8", errors="backslashreplace", write_through=True)


def _raised(error: BaseException, *, skip: int = 0) -> Answer:
    told, pickled = failure.capture(error, skip=skip, reduce=plain.reduce)
    return RAISED, Facts(), [memoryview(pickle.dumps(told)), *pickled.parts]


def _flush() -> None:
    with contextlib.suppress(Exception):  # a closed descriptor; nobody is left to tell
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)
