"""The caller's side of one isolated call: starts, watches, interrupts and ends the process that `worker` runs."""

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
from typing import TYPE_CHECKING

from tfgpu_magic.isolate.answer import Answer, timed_out
from tfgpu_magic.isolate.pool import FORK_SERVER
from tfgpu_magic.isolate.process import exit_cause, wire
from tfgpu_magic.isolate.process.forkserver_client import WorkerProcess
from tfgpu_magic.isolate.process.interrupt import InterruptEvent, setting_on_sigint
from tfgpu_magic.isolate.process.order import ANSWER_ME, HEARD, LEAVE, SHOW, SHOWN, WAY, WORK, Facts, Order
from tfgpu_magic.isolate.sinks import OwnStreams, Sink
from tfgpu_magic.isolate.way import Way
from tfgpu_magic.views import parking

if TYPE_CHECKING:
    from tfgpu_magic.isolate.process.wire import Message

GRACE = 5.0
"""Seconds from an interrupt to the end of a process that ignores it: TensorFlow may be busy in C++. The threads of a
call that has answered may go on for as long, and so may its process when they have ended."""

_PATIENCE = 5.0  # seconds in which a killed process must be gone, or be seen to be torn down
_TEARDOWN = 60.0  # seconds that the teardown may take: the system frees its memory, which may be hundreds of GiB
_ASK_EVERY = 0.1  # seconds after which a call that does not acknowledge an interrupt is asked for that again
_WARMING_NOTICE = 0.7  # seconds after which `Call.warming` reports that the fork server is still becoming warm
_CHUNK = 2**20  # bytes read of its output at a time


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """A call, to be run once. Any thread may interrupt it.

    Attributes:
        work: the parts of its pickled values, until they are sent.
        timeout: seconds that it may take, from its process's start; None is no limit. While it is parked they do not
            pass.
        sink: where its output goes.
        started: called with its pid when it has one.
        warming: called once if it has to wait for TensorFlow's import.
        answered: called with its answer before its process ends; returns `LEAVE`, or `APART` to be called again with
            the answer in pieces. None if the answer is read only after the end.
        way: how it makes way for others on the GPU.
        pid: its process's id; None before it has started.
        status: its process's exit status, as in `subprocess`; None before its end.
    """

    work: Sequence[memoryview]
    timeout: float | None = None
    sink: Sink = field(default_factory=OwnStreams)
    started: Callable[[int], None] = lambda _: None
    warming: Callable[[], None] = lambda: None
    answered: Callable[[Answer], str] | None = None
    way: Way = field(default_factory=Way)
    pid: int | None = None
    status: int | None = None
    _event: InterruptEvent = field(default_factory=InterruptEvent)

    def interrupt(self) -> None:
        """Interrupt it as Ctrl-C does; it is killed if it does not acknowledge that in `GRACE`, or at the second time.

        A call that has acknowledged the interrupt may take its time to save what it has; at the next interrupt it has
        `GRACE` to end.
        """
        self._event.set()

    def run(self, order: Order) -> Answer:
        """Run it to its end. When this returns or raises, its process is gone, and so are its descendants.

        Args:
            order: how its process is to be set up.

        Raises:
            WorkerDied: its process ended without an answer.
            TimedOut: it took too long, and ignored an interrupt; a call that obeys one answers, late.
            KeyboardInterrupt: it was interrupted and had to be killed; a call that obeys an interrupt answers.
            OSError: no process could be started.
        """
        kills = exit_cause.memory_kills()
        with self._event, setting_on_sigint(self._event):
            process = FORK_SERVER.start()
            try:
                answer = _Watch(self, order, process, self._event).run()
                words = process.last_words() if answer is None else ""
            finally:
                self.status = process.status
                process.close()
        if answer is None:
            raise exit_cause.died(process.status or 0, kills, exit_cause.memory_kills(), words)
        return answer


class _Step(enum.Enum):
    """The stage of a call on the way to its end."""

    RUNNING, INTERRUPTED, HEEDING, LEAVING, KILLED, GIVEN_UP = range(6)


_BUSY = (_Step.RUNNING, _Step.INTERRUPTED, _Step.HEEDING)


class _Watch:
    """The loop that waits for all events of a call's process, and acts on its deadlines."""

    def __init__(self, call: Call, order: Order, process: WorkerProcess, event: InterruptEvent) -> None:
        self._call, self._process, self._event = call, process, event
        self._order = replace(order, grace=GRACE, lingers=call.answered is not None)
        self._selector = selectors.DefaultSelector()
        self._decoders = {
            process.out: ("stdout", codecs.getincrementaldecoder("utf-8")("replace")),
            process.err: ("stderr", codecs.getincrementaldecoder("utf-8")("replace")),
        }
        self._answer: Answer | None = None
        self._began = time.monotonic()
        self._step = _Step.RUNNING
        self._due: float | None = self._began + _WARMING_NOTICE
        self._teardown_ends = self._began
        self._spent: int | None = None
        self._interrupted = self._timed_out = self._acknowledged = self._cut = False

    def run(self) -> Answer | None:
        """Watch it to its end, and return its answer; None if it ended without one."""
        with self._selector:
            self._selector.register(self._event, selectors.EVENT_READ, self._handle_interrupts)
            self._selector.register(self._process.status_pipe, selectors.EVENT_READ, self._read_status)
            while self._process.status is None and self._step is not _Step.GIVEN_UP:
                wait = None if self._due is None else max(0.0, self._due - time.monotonic())
                asks = self._step is _Step.INTERRUPTED
                ready = self._selector.select(min(wait or 0.0, _ASK_EVERY) if asks else wait)
                for key, _ in ready:
                    key.data()
                if self._due is not None and time.monotonic() >= self._due:
                    self._handle_deadline()
                elif asks and not ready:
                    # A signal that comes just before a system call does not end it, and Python acts on none meanwhile.
                    self._process.signal(ANSWER_ME)
            self._drain()
        return self._outcome()

    def _read_status(self) -> None:
        self._process.read_status()
        if self._call.pid is not None:
            return
        self._call.pid, self._began = self._process.pid, time.monotonic()
        self._call.started(self._process.pid or 0)
        self._due = self._limit()
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
        except ConnectionError:
            message = None
        if message is None:  # it ends; or the call has closed the connection, and there will be no answer
            self._cut = True
            self._unregister(self._process.connection)
            self._leave()
        elif message.kind == SHOW:
            for descriptor in self._decoders:  # what it printed before
                self._read(descriptor)
            self._call.sink.show(pickle.loads(message.parts[0]))  # noqa: S301  # from our own process
            if message.parts[1:]:  # it has a number, and the call waits for it
                self._send(SHOWN, message.parts[1:])
        elif message.kind == HEARD:
            self._extend()
        elif message.kind in WAY:
            self._make_way(message)
        else:
            facts: Facts = pickle.loads(message.parts[0])  # noqa: S301  # as above
            seconds = time.monotonic() - self._began - self._call.way.seconds
            values, raised = message.parts[1 : 1 + facts.values], message.parts[1 + facts.values :]
            self._answer = Answer(values=values, failure=raised, facts=facts, seconds=seconds)
            self._due = None
            if self._call.answered is not None:
                self._send(reply := self._call.answered(self._answer))
                if reply != LEAVE:
                    return  # it sends more, and an interrupt ends the wait for that
            self._leave()

    def _handle_interrupts(self) -> None:
        """Interrupt the process, and kill it at the second interrupt."""
        if self._step not in _BUSY:
            return  # an interrupt that comes too late is left in the event, for the next code that checks it
        for _ in range(self._event.taken()):
            if self._step is _Step.INTERRUPTED:
                self._kill()
            elif self._step in _BUSY:
                self._interrupted = True
                self._interrupt()
                if self._call.way.away and not self._acknowledged:
                    self._call.way.unpark()
                    self._say(parking.stopped_while_parked(GRACE))

    def _handle_deadline(self) -> None:
        """Do what is due."""
        if self._call.pid is None:
            self._due = None
            self._call.warming()
        elif self._step in (_Step.RUNNING, _Step.HEEDING) and not self._timed_out:
            self._timed_out, self._acknowledged = True, False
            self._interrupt()
        elif self._step is _Step.KILLED:
            self._wait_for_teardown()
        else:
            if self._answer is not None:
                self._say(f"The call's process had answered {2 * GRACE:g} s before, did not end, and was killed.")
            self._kill()

    def _interrupt(self) -> None:
        if self._process.pid is None:
            raise KeyboardInterrupt
        self._process.signal(signal.SIGINT)
        self._step, self._due = _Step.INTERRUPTED, time.monotonic() + GRACE

    def _extend(self) -> None:
        """Let it take its time, once: it has received the interrupt, and saves what it has, or goes on all the same."""
        if self._step is not _Step.INTERRUPTED or self._acknowledged:
            return
        self._step, self._acknowledged, self._due = _Step.HEEDING, True, None
        if self._timed_out:  # there may be no user to interrupt it again
            self._due = time.monotonic() + max(GRACE, self._call.timeout or 0.0)
        else:
            self._due = self._limit()

    def _limit(self) -> float | None:
        """Return when its time is over; None where it has no limit, and while it is parked."""
        if self._call.timeout is None or self._call.way.away:
            return None
        return self._began + self._call.way.seconds + self._call.timeout

    def _make_way(self, message: Message) -> None:
        """Serve a call that may be parked; its time does not pass while it is."""
        self._call.way.serve(self._process, message, self._say, ends=self._step is not _Step.RUNNING)
        if self._step in (_Step.RUNNING, _Step.HEEDING) and not self._timed_out:
            self._due = self._limit()

    def _say(self, text: str) -> None:
        self._call.sink.write("stderr", f"{text}\n")

    def _leave(self) -> None:
        if self._step not in _BUSY:
            return
        self._step, self._due = _Step.LEAVING, time.monotonic() + 2 * GRACE
        self._unregister(self._event)  # it is too late for an interrupt

    def _kill(self) -> None:
        self._process.signal(signal.SIGKILL)
        self._step, self._due = _Step.KILLED, time.monotonic() + _PATIENCE
        self._teardown_ends = self._due + _TEARDOWN

    def _wait_for_teardown(self) -> None:
        """Wait on while the system tears the process down; give it up when it hangs."""
        before, self._spent = self._spent, exit_cause.hung_ticks(self._call.pid or 0)
        if time.monotonic() < self._teardown_ends and (self._spent is None or self._spent != before):
            self._due = time.monotonic() + _PATIENCE
        else:
            self._step = _Step.GIVEN_UP

    def _unregister(self, source: object) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(source)  # type: ignore[arg-type]  # it is one of the registered sources

    def _drain(self) -> None:
        """Read its last output and message. Only a process that it has detached from itself could send more."""
        if self._call.pid is None:
            return
        for descriptor in self._decoders:
            self._read(descriptor)
            self._read(descriptor)  # to the end of the stream
        self._process.connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            if self._answer is None:
                self._receive()

    def _outcome(self) -> Answer | None:
        if self._answer is not None:
            return replace(self._answer, late=self._call.timeout) if self._timed_out else self._answer
        if self._timed_out:
            raise timed_out(self._call.timeout or 0.0)
        if self._interrupted:
            if self._step is not _Step.KILLED:
                ended = exit_cause.describe(self._process.status or 0)
                raise KeyboardInterrupt(f"The call was interrupted, and its process ended without an answer: {ended}.")
            if self._acknowledged:
                raise KeyboardInterrupt(
                    "The call heard the interrupt and went on. It was interrupted again, and killed."
                )
            raise KeyboardInterrupt(f"The call did not heed the interrupt within {GRACE:g} s, and was killed.")
        if self._step is _Step.GIVEN_UP:
            raise exit_cause.hung(self._call.pid or 0)
        status = self._process.status or 0
        if self._process.orphaned:
            raise exit_cause.orphaned(status, self._process.server_status())
        if self._cut and self._step is _Step.KILLED:
            raise exit_cause.cut_off(status)
        return None
