"""The worker process, just forked: it sets itself up as it is told, runs the call, answers and ends."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import inspect
import io
import os
import pickle
import random
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.engine import engine
from tfgpu_magic.engine.enforcement import look_well
from tfgpu_magic.errors import Unpicklable, WorkerDied
from tfgpu_magic.frameworks import registry, self_report
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.message import join_commas, msg, paragraph
from tfgpu_magic.isolate.call import AGAIN, ANSWER, APART, LEAVE, Outcome, Setup
from tfgpu_magic.isolate.process import wire
from tfgpu_magic.isolate.values import changes, failure, pickling, plain

_FILE: Any = io.FileIO.__mro__[-2]
_LASTING = (type, FunctionType, ModuleType)  # what a destructor may still need


Runner = Callable[[socket.socket, Sequence[memoryview]], Outcome]
"""Runs the work of a call: its connection, and the parts that its caller pickled."""


def run_call(connection: socket.socket, crash: int) -> None:
    """Run the one call that comes over the connection; none comes where its caller has given it up.

    Args:
        connection: the socket that messages arrive at and are sent to.
        crash: the descriptor that `faulthandler` writes the traceback of a crash to.
    """
    process_kind.in_worker = True
    faulthandler.enable(crash, all_threads=False)
    with contextlib.suppress(ConnectionResetError):
        message = wire.receive(connection)
        if message is not None:
            setup: Setup = pickle.loads(message.parts[0])  # noqa: S301  # from our own kernel
            try:
                _run(connection, setup)
            finally:
                _shut_down()
    _flush()


def call(connection: socket.socket, work: Sequence[memoryview]) -> Outcome:
    """Call a function; this is the runner of all calls of functions."""
    del connection
    try:
        function, arguments, keywords = pickling.load(work)
        given = _given(function, arguments, keywords)
        digests = changes.digests(given)
        value = function(*arguments, **keywords)
    except BaseException as error:  # also SystemExit: it ends the call, and not this process
        ignore_interrupts()
        return Outcome(failure=failure.dump(error, skip=1))
    ignore_interrupts()
    title, returned = pickling.name_of(function), {id(value), *map(id, gc.get_referents(value))}
    changed = changes.changed_names(digests, {n: part for n, part in given.items() if id(part) not in returned})
    text = "{function} changed only its own copies of {names}: return what is to come back from a call."
    note = msg(text, function=title, names=join_commas(changed)) if changed else None
    name = f"the result of {title}"
    try:
        return Outcome(values=pickling.dump_self_contained(value, name, reduce=plain.reduce).parts, note=note)
    except Unpicklable as error:
        weights = paragraph((error.message, "value() of this error returns it with its weights only."))
        failed = Unpicklable(weights, what=error.what)
        with contextlib.suppress(Unpicklable):
            values = pickling.dump_self_contained(value, name, reduce=plain.with_weights).parts
            return Outcome(values=values, failure=failure.dump(failed), note=note)
        failed = error.with_traceback(None)  # which shows only our own code
        return Outcome(failure=failure.dump(failed), note=note)


def _given(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Return what a call is given, the arguments by their names and the notebook's names that its function reads."""
    given = dict(pickling.main_namespace())
    with contextlib.suppress(TypeError, ValueError):  # its signature is another, or unknown
        given |= inspect.signature(function).bind(*args, **kwargs).arguments
    return given


def ignore_interrupts() -> None:
    """Ignore interrupts from now on: they would undo what is there."""
    signal.signal(signal.SIGINT, lambda *_: None)


def _run(connection: socket.socket, setup: Setup) -> None:
    here = os.getpid()
    outcome = _work(connection, setup)
    if os.getpid() != here:
        os._exit(0)  # a fork that the call has let return: the call itself answers
    if outcome is None:
        return
    ignore_interrupts()
    if (check := sys.modules.get("tfgpu_magic.engine.in_force")) is not None:  # else nothing was asked
        check.tell(driver=False)
    _flush()
    with contextlib.suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # what it has opened must not keep its answer back
    try:
        _send(connection, outcome)
        # It waits, so that its memory can be read and its answer unpickled while it is still there.
        while (message := wire.receive(connection)) is not None and message.kind != LEAVE:
            if message.kind == APART and outcome.in_pieces is not None:
                outcome = outcome.in_pieces()
            if message.kind in (AGAIN, APART):  # others are receipts of displays whose wait was interrupted
                _send(connection, outcome)
    except ConnectionError:  # the caller no longer waits
        return
    except OSError as error:
        text = "No answer can be given ({error}): most likely the call has closed descriptors that were not its own."
        raise WorkerDied(msg(text, error=error)) from None


def _send(connection: socket.socket, outcome: Outcome) -> None:
    with contextlib.suppress(Exception):  # the call may have left this process in any state, and facts are no answer
        outcome = replace(outcome, uses=self_report.short_report().uses)
        if outcome.uses:
            outcome = replace(outcome, pools=tuple(registry.pools(settings=True)))
    try:
        wire.send(connection, ANSWER, outcome.parts)
    except ConnectionError:
        raise
    except OSError as error:  # no room for a large result
        failed = failure.dump(error.with_traceback(None))
        wire.send(connection, ANSWER, replace(outcome, values=(), given=(), failure=failed).parts)


def _work(connection: socket.socket, setup: Setup) -> Outcome | None:
    """Set this process up, and return the outcome of its call; None when no call follows."""
    try:
        _set_up(setup)
        module, _, name = setup.runner.partition(":")
        runner: Runner = getattr(importlib.import_module(module), name)
        work = wire.receive(connection)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # an interrupt that came early is raised here
        return None if work is None else runner(connection, work.parts)
    except BaseException as error:  # a refused policy, a directory that is gone, an interrupt that came early
        return Outcome(failure=failure.dump(error))


def _set_up(setup: Setup) -> None:
    """Set this process up as if the caller had started it, with the caller's environment and directory."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for inherit in setup.inheritance:
        inherit()
    if setup.claim is not None:
        with LEDGER.transaction() as state:
            state.change(setup.claim, worker=LEDGER.slot)
    sys.stdout = sys.__stdout__ = _text(1)  # type: ignore[misc]  # no constant; the old stream's output would be lost
    sys.stderr = sys.__stderr__ = _text(2)  # type: ignore[misc]
    with contextlib.suppress(ValueError, AttributeError):
        libc = ctypes.CDLL(None)  # output of C libraries would wait in a buffer, because a pipe is no terminal
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)  # 1 is _IOLBF
    random.seed()
    if "numpy" in sys.modules:  # all calls are forks of one process, and would draw the same numbers
        sys.modules["numpy"].random.seed()
    if setup.other_frameworks.requests:
        RUNTIME.set_other_policy(setup.other_frameworks)
    if setup.policy.requests or setup.other_frameworks.requests:
        snapshot = setup.snapshot
        see = look_well if snapshot is None else lambda: snapshot
        engine.apply(setup.policy, frameworks=setup.frameworks, see=see)


class _WholeWrites(io.FileIO):
    """A file whose `write` writes all its data, where a signal may cut the system's own call short."""

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[super().write(rest) or 0 :]
        return memoryview(data).nbytes


def _text(descriptor: int) -> io.TextIOWrapper:
    """Return an unbuffered stream: what a call prints before it crashes must be seen."""
    raw: Any = _WholeWrites(descriptor, "wb", closefd=False)  # raw, as Python's own are with -u
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def _flush() -> None:
    with contextlib.suppress(Exception):  # a closed descriptor; there is nothing left to report it to
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)


def _shut_down() -> None:
    """Flush buffers, wait for threads, run exit functions, and release what the program has made, as at its end.

    The end of the interpreter is left out, in which TensorFlow takes a second to free what the system frees anyway.
    """
    _flush_files()
    with contextlib.suppress(Exception):  # of a thread pool's own
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _release()
    _flush_files()


def _flush_files() -> None:
    """Flush every open file, the outer ones first: what they write goes to the buffers of the inner ones."""
    # By type, and their base class in C: isinstance() asks a proxy for its target's class, which may load the target.
    files = [found for found in gc.get_objects() if issubclass(type(found), _FILE)]
    for file in sorted(files, key=_depth):
        with contextlib.suppress(Exception):  # closed, or to read from; whatever an object's own flush() raises
            file.flush()


def _depth(file: Any) -> int:
    return 0 if isinstance(file, io.TextIOBase) else 2 if isinstance(file, io.BufferedWriter | io.BufferedRandom) else 1


def _release() -> None:
    """Release the program's objects, so that their destructors write what they have to write."""
    sys.last_value = sys.last_traceback = None
    names: dict[str, Any] = vars(sys.modules["__main__"])
    for name in [name for name, value in names.items() if not isinstance(value, _LASTING)]:
        if not name.startswith("__"):
            del names[name]
    gc.collect()
