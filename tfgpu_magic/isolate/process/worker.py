"""A call's process, just forked: it becomes what its order says, runs the call, answers and ends. Never returns."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import io
import os
import pickle
import random
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfgpu_magic.config import self_report
from tfgpu_magic.config.runtime import adopt, limits_now
from tfgpu_magic.errors import Unpicklable, WorkerDied
from tfgpu_magic.isolate.process import inherited, inside, keras_settings, wire
from tfgpu_magic.isolate.process.order import ANSWER, ANSWER_ME, APART, HEARD, LEAVE, Facts, Order
from tfgpu_magic.isolate.process.result import Result, Runner, raised
from tfgpu_magic.isolate.process.shutdown import shut_down
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.isolate.values.returned import give


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


def call(connection: socket.socket, order: Order, work: Sequence[memoryview]) -> Result:
    """Call a function: the runner of all calls of functions."""
    del connection
    try:
        function, arguments, keywords = pickling.load(work)
        value = function(*arguments, **keywords)
    except BaseException as error:  # also SystemExit: it ends the call, not us
        be_done()
        return Result(error=raised(error, skip=1))
    be_done()
    try:
        return Result(values=give(value, f"the result of {pickling.name_of(function)}", order.imported).parts)
    except Unpicklable as error:
        return Result(error=raised(error.with_traceback(None)))  # of ours, and it says nothing


def be_done() -> None:
    """Let no interrupt undo what is done. It is heard all the same: a call that hears none is killed while it sends."""
    signal.signal(signal.SIGINT, lambda *_: None)


def _run(connection: socket.socket, order: Order) -> None:
    here = os.getpid()
    outcome = _work(connection, order)
    if os.getpid() != here:
        os._exit(0)  # a fork that the call has let come to its end: it is the call's to answer
    if outcome is None:
        return
    be_done()
    _flush()
    try:
        _send(connection, outcome)
        while order.lingers and (said := wire.receive(connection)) is not None and said.kind != LEAVE:
            # Else a display that was interrupted has left behind what it waited for.
            if said.kind == APART and outcome.apart is not None:
                _send(connection, outcome.apart())
    except ConnectionError:  # nobody waits any more
        return
    except OSError as error:
        raise WorkerDied(
            f"No answer can be given ({error}): most likely the call has closed descriptors that were not its own."
        ) from None


def _send(connection: socket.socket, outcome: Result) -> None:
    facts = Facts(values=len(outcome.values))
    with contextlib.suppress(Exception):  # the call may have left this process in any state, and this is no answer
        facts = replace(facts, uses=self_report.brief().uses)
        if facts.uses:
            facts = replace(facts, limited=frozenset(gpu for gpu, pools in limits_now().items() if pools))
    try:
        wire.send(connection, ANSWER, [pickle.dumps(facts), *outcome.values, *outcome.error])
    except ConnectionError:
        raise
    except OSError as error:  # no room for a large result
        facts = replace(facts, values=0)
        wire.send(connection, ANSWER, [pickle.dumps(facts), *raised(error.with_traceback(None))])


def _work(connection: socket.socket, order: Order) -> Result | None:
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
        return Result(error=raised(error))


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
    inherited.take(order.inherited)
    sys.stdout = sys.__stdout__ = _text(1)  # type: ignore[misc]  # it is no constant, and who uses it would be unheard
    sys.stderr = sys.__stderr__ = _text(2)  # type: ignore[misc]
    with contextlib.suppress(ValueError, AttributeError):
        libc = ctypes.CDLL(None)  # a C library's prints would wait in a buffer, because a pipe is no terminal
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)  # 1 is _IOLBF
    random.seed()
    if "numpy" in sys.modules:  # all calls are forks of one process, and would draw the same numbers
        sys.modules["numpy"].random.seed()
    keras_settings.make(order.precision)
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


def _flush() -> None:
    with contextlib.suppress(Exception):  # a closed descriptor; nobody is left to tell
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)
