"""The caller's side of one isolated call: starts, watches, interrupts and ends the process that `worker` runs.

Its answer is unpickled only when it is wanted.
"""

from __future__ import annotations

import codecs
import contextlib
import enum
import functools
import os
import pickle
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfgpu_magic.errors import TimedOut, Unpicklable
from tfgpu_magic.isolate import host_memory
from tfgpu_magic.isolate.leasing import LEASES
from tfgpu_magic.isolate.process import exit_cause, wire
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER, WorkerProcess
from tfgpu_magic.isolate.process.interrupt import InterruptEvent, put_off
from tfgpu_magic.isolate.process.order import AGAIN, LEAVE, SHOW, SHOWN, WORK, Order, WorkerFacts
from tfgpu_magic.isolate.sinks import OwnStreams, Sink
from tfgpu_magic.isolate.values import failure, pickling
from tfgpu_magic.isolate.values.failure import Failure

GRACE = 60.0
"""Seconds from the interrupt of a call that has taken too long to its end, if it does not end by itself."""

PATIENCE = 5.0
"""Seconds from an interrupt, or from the answer, to the line that offers to kill a call that has not ended."""

_TEARDOWN = 60.0  # seconds in which a killed process must be gone: the system frees its memory, perhaps hundreds of GiB
_WARMING_NOTICE = 0.7  # seconds after which `Call.warming` reports that the fork server is still becoming warm
_CHUNK = 2**20  # bytes read of its output at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswer:
    """The answer of a call.

    Attributes:
        values: the parts of the pickle of what it returned; none if it returned nothing.
        failure: the parts of the pickle of what it raised; none if it raised nothing.
        facts: what its process reported at its end.
        seconds: how long it took.
        late: the timeout that it exceeded, in seconds, if it raised then; else None.
    """

    values: tuple[memoryview, ...] = ()
    failure: tuple[memoryview, ...] = ()
    facts: WorkerFacts = field(default_factory=WorkerFacts)
    seconds: float = 0.0
    late: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it raised."""
        return bool(self.failure)

    @property
    def shown(self) -> tuple[str, ...]:
        """The lines of what it raised, as IPython showed it there; none if no IPython ran."""
        return self._description().shown if self.failed else ()

    def error(self) -> BaseException | None:
        """Return what it raised, as its own type, or as the cause of `TimedOut`; None if it raised nothing."""
        raised = failure.revive(self._description(), self.failure[1:]) if self.failed else None
        if self.late is None:
            return raised
        late = _timed_out(self.late)
        late.__cause__ = raised
        return late

    def value(self) -> Any:
        """Return what it returned.

        Raises:
            BaseException: what it raised.
            Unpicklable: what it returned cannot be unpickled in this process; the error's `value` tries it again.
        """
        raised = self.error()
        if raised is not None:
            failed = raised.__cause__ if self.late is not None else raised
            if self.values and isinstance(failed, Unpicklable):  # a model, of which only the weights have come
                failed.value = functools.partial(pickling.load, self.values, pickling.GuardedUnpickler)
            raise raised
        try:
            return pickling.load(self.values, pickling.GuardedUnpickler)
        except Unpicklable as error:
            error.value = self.value
            raise
        except Exception as error:  # a module that only the call has; any error of an object's own __setstate__
            refused = Unpicklable(
                f"What the call returned cannot be made again here ({error}). Once it can be, as when its "
                "module can be imported, value() of this error returns it."
            )
            refused.value = self.value
            raise refused from error

    def _description(self) -> Failure:
        description: Failure = pickle.loads(self.failure[0])  # noqa: S301  # from our own process
        return description


def _timed_out(seconds: float) -> TimedOut:
    """Return the error of a call that took longer than `seconds`."""
    return TimedOut(f"The call took longer than {seconds:g} s, and was ended.", seconds=seconds)


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """A call, to be run once. Any thread may interrupt it.

    Attributes:
        work: the parts of its pickled values, until they are sent.
        timeout: seconds that it may take, from its process's start; None is no limit.
        sink: where its output goes.
        started: called with its pid when it has one.
        warming: called once if it has to wait for TensorFlow's import.
        answered: called with its answer before its process ends; returns `LEAVE`, or `APART` to be called again with
            the answer in pieces.
        stopped: whether it is no longer wanted.
        begun: whether it has what it waited for.
        pid: its process's id; None before it has started.
        status: its process's exit status, as in `subprocess`; None before its end.
        doomed: whether it is to be killed.
        interrupted_late: whether it was interrupted when it had answered, which takes nothing of the answer.
    """

    work: Sequence[memoryview]
    timeout: float | None = None
    sink: Sink = field(default_factory=OwnStreams)
    started: Callable[[int], None] = lambda _: None
    warming: Callable[[], None] = lambda: None
    answered: Callable[[CallAnswer], str] = lambda _: LEAVE
    stopped: bool = False
    begun: bool = False
    pid: int | None = None
    status: int | None = None
    doomed: bool = False
    interrupted_late: bool = False
    _event: InterruptEvent = field(default_factory=InterruptEvent)

    def interrupt(self) -> None:
        """Interrupt it as Ctrl-C does, however often: it may take its time to save what it has.

        If it has not ended after `PATIENCE`, a line says that the next interrupt kills it.
        """
        self._event.set()

    def kill(self) -> None:
        """Kill it."""
        self.doomed = True
        self._event.set()

    def stop(self, *, kill: bool = False) -> None:
        """Interrupt or kill it; where it waits for GPUs, it does not begin."""
        self.stopped = True
        if self.begun:
            (self.kill if kill else self.interrupt)()
        LEASES.stir()

    def run(self, order: Order) -> CallAnswer:
        """Run it to its end. When this returns or raises, its process is gone, and so are its descendants.

        Args:
            order: how its process is to be set up.

        Raises:
            WorkerDied: its process ended without an answer.
            TimedOut: it took too long, and did not answer the interrupt of that in `GRACE`; else it answers, late.
            KeyboardInterrupt: it was interrupted and gave no answer.
            OSError: no process could be started.
        """
        kills, answer, words = host_memory.kills(), None, ""
        try:
            with self._event, put_off(self._event):
                process = FORK_SERVER.start()
                try:
                    answer = _CallWatch(self, order, process, self._event).run()
                    words = process.last_words() if answer is None else ""
                finally:
                    self.status = process.status
                    process.close()
        except KeyboardInterrupt:
            if answer is None:
                raise
            self.interrupted_late = True
        if answer is None:
            raise exit_cause.died(process.status or 0, kills, host_memory.kills(), words)
        return answer


class _CallStage(enum.Enum):
    """The stage of a call on the way to its end."""

    RUNNING, INTERRUPTED, WARNED, LEAVING, KILLED, GIVEN_UP = range(6)


_BUSY = (_CallStage.RUNNING, _CallStage.INTERRUPTED, _CallStage.WARNED)


class _CallWatch:
    """The loop that waits for all events of a call's process, and acts on its deadlines."""

    def __init__(self, call: Call, order: Order, process: WorkerProcess, event: InterruptEvent) -> None:
        self._call, self._process, self._event = call, process, event
        self._order = order
        self._selector = selectors.DefaultSelector()
        self._decoders = {
            process.out: ("stdout", codecs.getincrementaldecoder("utf-8")("replace")),
            process.err: ("stderr", codecs.getincrementaldecoder("utf-8")("replace")),
        }
        self._answer: CallAnswer | None = None
        self._began = time.monotonic()
        self._stage = _CallStage.RUNNING
        self._due: dict[Callable[[], None], float] = {call.warming: self._began + _WARMING_NOTICE}
        self._interrupted = self._timed_out = self._cut = self._asked_again = False

    def run(self) -> CallAnswer | None:
        """Watch it to its end, and return its answer; None if it ended without one."""
        with self._selector:
            self._selector.register(self._event, selectors.EVENT_READ, self._handle_interrupts)
            self._selector.register(self._process.status_pipe, selectors.EVENT_READ, self._read_status)
            while self._process.status is None and self._stage is not _CallStage.GIVEN_UP:
                first = min(self._due.values(), default=None)
                for key, _ in self._selector.select(None if first is None else max(0.0, first - time.monotonic())):
                    key.data()
                for act in [act for act, when in self._due.items() if time.monotonic() >= when]:
                    if self._due.pop(act, None) is not None:  # no other of these has made it void
                        act()
            self._drain()
        return self._outcome()

    def _read_status(self) -> None:
        self._process.read_status()
        if self._call.pid is not None:
            return
        self._call.pid, self._began = self._process.pid, time.monotonic()
        self._call.started(self._process.pid or 0)
        self._due.pop(self._call.warming, None)
        if self._call.timeout is not None:
            self._due[self._time_out] = self._began + self._call.timeout
        self._selector.register(self._process.connection, selectors.EVENT_READ, self._receive)
        for descriptor in self._decoders:
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ, functools.partial(self._read, descriptor))
        self._send("", [memoryview(pickle.dumps(self._order))])
        self._send(WORK, self._call.work)
        self._call.work = ()  # the call may take long, and the values are not needed here any more

    def _send(self, kind: str, parts: Sequence[memoryview] = ()) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has died, which its status will report
            wire.send(self._process.connection, kind, parts)

    def _read(self, descriptor: int) -> None:
        """Show what it has printed; of a flood only so much at a time, so that other events are served too."""
        stream, decoder = self._decoders[descriptor]
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._unregister(descriptor)
        if text := decoder.decode(data, final=not data):
            self._call.sink.write(stream, text)

    def _receive(self) -> None:
        try:
            message = wire.receive(self._process.connection)
        except BlockingIOError:
            raise
        except ConnectionError:  # it has ended without reading all; what it sent before comes next
            return
        except OSError as error:  # there are no descriptors, or there is no room
            self._ask_later(error)
            return
        if message is None:  # it ends; or the call has closed the connection, which its process says at its end
            self._cut = True
            self._unregister(self._process.connection)
        elif message.kind == SHOW:
            for descriptor in self._decoders:  # what it printed before
                self._read(descriptor)
            self._call.sink.show(pickle.loads(message.parts[0]))  # noqa: S301  # from our own process
            if message.parts[1:]:  # it has a number, and the call waits for it
                self._send(SHOWN, message.parts[1:])
        else:
            self._take(message)

    def _take(self, message: wire.WireMessage) -> None:
        """Take an answer; the process leaves, or sends it in pieces."""
        facts: WorkerFacts = pickle.loads(message.parts[0])  # noqa: S301  # from our own process
        seconds = time.monotonic() - self._began
        values, raised = message.parts[1 : 1 + facts.values], message.parts[1 + facts.values :]
        answer = CallAnswer(values=values, failure=raised, facts=facts, seconds=seconds)
        if values or self._answer is None:  # else there was no room for the pieces of the one that is there
            self._answer = answer
        if self._stage in _BUSY:
            self._due.clear()
        self._send(reply := self._call.answered(answer))
        if reply == LEAVE:
            self._leave()
        elif self._stage in _BUSY:  # interrupts may end the wait for the pieces
            self._stage = _CallStage.RUNNING

    def _ask_later(self, error: OSError) -> None:
        if not self._asked_again:
            self._say(f"What the call sends cannot be taken ({error.strerror}). It is asked for every second.")
        self._asked_again = True
        self._due[self._ask_again] = time.monotonic() + 1.0

    def _handle_interrupts(self) -> None:
        """Interrupt the process, unless it has answered; kill it once that was announced."""
        for _ in range(self._event.taken()):
            if self._stage in (_CallStage.KILLED, _CallStage.GIVEN_UP):
                return
            self._interrupted, self._call.interrupted_late = True, self._answer is not None
            if self._stage is _CallStage.WARNED or self._call.doomed:
                self._kill()
                return
            if self._stage is _CallStage.LEAVING:
                self._warn()
                continue
            self._signal(signal.SIGINT)
            if self._stage is _CallStage.RUNNING:
                self._stage, self._due[self._warn] = _CallStage.INTERRUPTED, time.monotonic() + PATIENCE

    def _signal(self, number: int) -> None:
        if self._process.pid is None:
            raise KeyboardInterrupt
        self._process.signal(number)

    def _warn(self) -> None:
        how = "been interrupted" if self._answer is None else "answered"
        self._say(f"The call has {how}, and has not ended. The next interrupt kills it.")
        self._stage = _CallStage.WARNED

    def _time_out(self) -> None:
        self._timed_out = True
        self._signal(signal.SIGINT)
        self._due[self._kill] = time.monotonic() + GRACE

    def _say(self, text: str) -> None:
        self._call.sink.write("stderr", f"{text}\n")

    def _ask_again(self) -> None:
        self._send(AGAIN)

    def _leave(self) -> None:
        """Wait for its end, as long as its threads and exit functions take to save something."""
        if self._stage not in _BUSY:
            return
        self._stage, now = _CallStage.LEAVING, time.monotonic()
        self._due = {self._remark: now + PATIENCE}
        if self._call.timeout is not None:
            self._due[self._cut_off] = max(now, self._began + self._call.timeout) + GRACE

    def _remark(self) -> None:
        self._say(
            "The call has answered, and its process has not ended: threads or exit functions of it still run. "
            "The second interrupt from now kills it."
        )

    def _cut_off(self) -> None:
        self._say("The call had answered; its process did not end in the call's timeout, and was killed.")
        self._kill()

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._stage, self._due = _CallStage.KILLED, {self._give_up: time.monotonic() + _TEARDOWN}

    def _give_up(self) -> None:
        self._stage = _CallStage.GIVEN_UP

    def _unregister(self, source: object) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(source)  # type: ignore[arg-type]  # it is one of the registered sources

    def _drain(self) -> None:
        """Read its last output and messages. Only a process that it has detached from itself could send more."""
        if self._call.pid is None:
            return
        for descriptor in self._decoders:
            self._read(descriptor)
            self._read(descriptor)  # to the end of the stream
        self._process.connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while not self._cut:
                self._receive()

    def _outcome(self) -> CallAnswer | None:
        if self._answer is not None:
            if self._timed_out and self._answer.failed:
                return replace(self._answer, late=self._call.timeout)
            if self._timed_out:
                self._say(f"The call took longer than {self._call.timeout:g} s, was interrupted, and gave its value.")
            return self._answer
        if self._stage is _CallStage.GIVEN_UP:
            raise exit_cause.hung(self._call.pid or 0)
        if self._timed_out:
            raise _timed_out(self._call.timeout or 0.0)
        if self._interrupted:
            if self._stage is _CallStage.KILLED:
                raise KeyboardInterrupt("The call was interrupted, did not end, and was killed.")
            ended = exit_cause.describe(self._process.status or 0)
            raise KeyboardInterrupt(f"The call was interrupted, and its process ended without an answer: {ended}.")
        status = self._process.status or 0
        if self._process.orphaned:
            raise exit_cause.orphaned(status, self._process.server.exit_status())
        return None
