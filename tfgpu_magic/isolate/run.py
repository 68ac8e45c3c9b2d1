"""Runs a call, of a function or a cell: its lease, its process, which `worker` sets up, and its outcome.

What is due is decided by `watch`; this starts, signals and reads the process. The outcome is unpickled only when it is
wanted.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import os
import pickle
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from tfgpu_magic.claims.ledger import LEDGER
from tfgpu_magic.engine import engine
from tfgpu_magic.ground import TENSORFLOW
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.ground.process_kind import shell
from tfgpu_magic.isolate import watch
from tfgpu_magic.isolate.call import AGAIN, LEAVE, SHOW, SHOWN, WORK, Call, Outcome, Setup, timed_out
from tfgpu_magic.isolate.inheritance import inheritance
from tfgpu_magic.isolate.leasing import LEASES, Abandoned, Lease, LeaseRequest
from tfgpu_magic.isolate.process import exit_cause, wire
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER, WorkerProcess
from tfgpu_magic.isolate.process.interrupt import InterruptEvent, deferring_interrupts
from tfgpu_magic.isolate.sinks import Sink
from tfgpu_magic.isolate.watch import CallStage, Deed, Event, Unreadable
from tfgpu_magic.machine import host_memory
from tfgpu_magic.policy.policy import NOTHING, Memory, Policy, Reset
from tfgpu_magic.policy.process_state import showing

_CHUNK = 2**20  # bytes read of its output at a time

_shown_notes: set[str] = set()
"""The notes of calls that have been shown: a loop of calls shows each once."""


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """The run of a call, of which there is one. Any thread may interrupt it.

    Attributes:
        call: what is asked of it.
        work: the parts of its pickled values, until they are sent.
        sink: where its output goes.
        warming: called once if it has to wait for TensorFlow's import.
        answered: called with its outcome before its process ends; returns `LEAVE`, or `APART` to be called again with
            the outcome in pieces.
        stopped: whether it is no longer wanted.
        begun: whether it has what it waited for.
        pid: its process's id; None before it has started.
        status: its process's exit status, as in `subprocess`; None before its end.
        to_be_killed: whether it is to be killed.
        interrupted_late: whether it was interrupted when it had answered, which takes nothing of the answer.
    """

    call: Call
    work: Sequence[memoryview] = ()
    sink: Sink = field(default_factory=Sink)
    warming: Callable[[], None] = lambda: None
    answered: Callable[[Outcome], str] = lambda _: LEAVE
    stopped: bool = False
    begun: bool = False
    pid: int | None = None
    status: int | None = None
    to_be_killed: bool = False
    interrupted_late: bool = False
    event: InterruptEvent = field(default_factory=InterruptEvent)

    def interrupt(self) -> None:
        """Interrupt it as Ctrl-C does, however often: it may take its time to save what it has.

        If it has not ended after `watch.PATIENCE`, a line says that the next interrupt kills it.
        """
        self.event.set()

    def kill(self) -> None:
        """Kill it."""
        self.to_be_killed = True
        self.event.set()

    def stop(self, *, kill: bool = False) -> None:
        """Interrupt or kill it; if it waits for GPUs, it does not begin."""
        self.stopped = True
        if self.begun:
            (self.kill if kill else self.interrupt)()

    def run(self, lease: AbstractContextManager[Lease], runner: str) -> Outcome:
        """Run it with what a lease gives it, and return its outcome.

        Args:
            lease: what it may have; waited for.
            runner: what runs it in its process; see `Setup`.

        Raises:
            Refused: its GPUs cannot be had.
            Abandoned: it is no longer wanted, and has not run.
            BaseException: as `run_process`.
        """
        outcome = None
        try:
            with lease as had:
                prepared = setup(self.call, had, runner)
                self.begun = True
                if self.stopped:
                    raise Abandoned
                outcome = self.run_process(prepared)
                if outcome.note is not None and (note := str(outcome.note)) not in _shown_notes:
                    _shown_notes.add(note)
                    self.sink.write("stderr", f"{note}\n")
        except (KeyboardInterrupt, OSError) as error:  # while the lease is given back
            if outcome is None:
                raise
            self.interrupted_late |= isinstance(error, KeyboardInterrupt)
        finally:
            self.work = ()  # they may be large, and a future keeps its run
        return outcome

    def run_process(self, prepared: Setup) -> Outcome:
        """Run its process to its end. When this returns or raises, the process is gone, and so are its descendants.

        Args:
            prepared: how the process is to be set up.

        Raises:
            WorkerDied: the process ended without an answer.
            TimedOut: it took too long, and did not answer the interrupt of that in `watch.GRACE`.
            KeyboardInterrupt: it was interrupted and gave no answer.
            OSError: no process could be started.
        """
        kills, outcome, words = host_memory.oom_kills(), None, ""
        try:
            with self.event, deferring_interrupts(self.event):
                process = FORK_SERVER.start()
                try:
                    outcome = _CallWatch(self, prepared, process).run()
                    words = process.last_words() if outcome is None else ""
                finally:
                    self.status = process.status
                    process.close()
        except KeyboardInterrupt:
            if outcome is None:
                raise
            self.interrupted_late = True
        if outcome is None:
            raise exit_cause.died(process.status or 0, kills, host_memory.oom_kills(), words)
        return outcome


class _CallWatch:
    """The loop that reads what a call's process sends, and does what `watch` says is due."""

    def __init__(self, run: Run, prepared: Setup, process: WorkerProcess) -> None:
        self._run, self._setup, self._process = run, prepared, process
        self._selector = selectors.DefaultSelector()
        self._decoders = {
            process.out: ("stdout", codecs.getincrementaldecoder("utf-8")("replace")),
            process.err: ("stderr", codecs.getincrementaldecoder("utf-8")("replace")),
        }
        self._outcome: Outcome | None = None
        self._state = watch.begin(run.call.timeout, time.monotonic())
        self._cut = False

    def run(self) -> Outcome | None:
        """Watch it to its end, and return its outcome; None if it ended without one."""
        with self._selector:
            self._selector.register(self._run.event, selectors.EVENT_READ, self._read_interrupts)
            self._selector.register(self._process.status_pipe, selectors.EVENT_READ, self._read_status)
            while self._process.status is None and self._state.stage is not CallStage.GIVEN_UP:
                first = min(self._state.due.values(), default=None)
                for key, _ in self._selector.select(None if first is None else max(0.0, first - time.monotonic())):
                    key.data()
                while (event := watch.due(self._state, time.monotonic())) is not None:
                    self._step(event)
            self._drain()
        self._run.interrupted_late = self._state.interrupted_late
        return self._end()

    def _step(self, event: Event | Unreadable) -> None:
        """Do what is due after an event."""
        self._state, deeds = watch.step(self._state, event, time.monotonic())
        for deed in deeds:
            match deed:
                case Message():
                    self._say(deed)
                case signal.Signals():
                    self._process.signal(deed)
                case Deed.ANNOUNCE_WARMING:
                    self._run.warming()
                case Deed.ASK_AGAIN:
                    self._send(AGAIN)
                case Deed.CANCEL:
                    raise KeyboardInterrupt

    def _say(self, message: Message) -> None:
        self._run.sink.write("stderr", f"{message}\n")

    def _read_interrupts(self) -> None:
        for _ in range(self._run.event.taken()):
            self._step(Event.KILLED if self._run.to_be_killed else Event.INTERRUPTED)

    def _read_status(self) -> None:
        self._process.read_status()
        if self._run.pid is not None:
            return
        self._run.pid = self._process.pid
        self._step(Event.STARTED)
        if (claim := self._setup.claim) is not None:
            with LEDGER.transaction() as state:
                state.change(claim, pid=self._process.pid)
        self._selector.register(self._process.connection, selectors.EVENT_READ, self._receive)
        for descriptor in self._decoders:
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ, functools.partial(self._read, descriptor))
        self._send("", [memoryview(pickle.dumps(self._setup))])
        self._send(WORK, self._run.work)
        self._run.work = ()  # the call may take long, and the values are not needed here any more

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
            self._run.sink.write(stream, text)

    def _receive(self) -> None:
        try:
            message = wire.receive(self._process.connection)
        except BlockingIOError:
            raise
        except ConnectionError:  # it has ended without reading all; what it sent before comes next
            return
        except OSError as error:  # there are no descriptors, or there is no room
            self._step(Unreadable(str(error.strerror)))
            return
        if message is None:  # it ends; or the call has closed the connection, which its process says at its end
            self._cut = True
            self._unregister(self._process.connection)
        elif message.kind == SHOW:
            for descriptor in self._decoders:  # what it printed before
                self._read(descriptor)
            self._run.sink.show(pickle.loads(message.parts[0]))  # noqa: S301  # from our own process
            if message.parts[1:]:  # it has a number, and the call waits for it
                self._send(SHOWN, message.parts[1:])
        else:
            self._take(Outcome.from_parts(message.parts, time.monotonic() - self._state.began))

    def _take(self, outcome: Outcome) -> None:
        """Take an outcome; the process leaves, or sends it in pieces."""
        if outcome.values or self._outcome is None:  # else there was no room for the pieces of the one that is there
            self._outcome = outcome
        self._send(reply := self._run.answered(outcome))
        self._step(Event.LEFT if reply == LEAVE else Event.ANSWERED)

    def _unregister(self, source: object) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(source)  # type: ignore[arg-type]  # it is one of the registered sources

    def _drain(self) -> None:
        """Read its last output and messages. Only a process that it has detached from itself could send more."""
        if self._run.pid is None:
            return
        for descriptor in self._decoders:
            self._read(descriptor)
            self._read(descriptor)  # to the end of the stream
        self._process.connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while not self._cut:
                self._receive()

    def _end(self) -> Outcome | None:
        timeout = self._run.call.timeout or 0.0
        if self._outcome is not None:
            if self._state.timed_out and self._outcome.failure:
                return replace(self._outcome, late=timeout)
            if self._state.timed_out:
                text = "The call took longer than {seconds} s, was interrupted, and gave its value."
                self._say(msg(text, seconds=f"{timeout:g}"))
            return self._outcome
        status = self._process.status or 0
        if self._state.stage is CallStage.GIVEN_UP:
            raise exit_cause.hung(self._run.pid or 0)
        if self._state.timed_out:
            raise timed_out(timeout)
        if self._state.interrupted:
            killed = self._state.stage is CallStage.KILLED
            raise KeyboardInterrupt(str(exit_cause.interrupted(None if killed else status)))
        if self._process.orphaned:
            raise exit_cause.orphaned(status, self._process.server.exit_status())
        return None


def setup(call: Call, lease: Lease, runner: str) -> Setup:
    """Return the setup of a process that is as this one is, but for the policy that a lease gives the call."""
    here, policy = engine.current(), lease.policy
    others = NOTHING if lease.environment else here.asked_of_all.then(_for_all(call, policy))
    own = others.for_framework(TENSORFLOW).memory
    asked = bool(call.for_all.requests) or not here.configured  # no call is refused for a configured policy
    together = asked and bool(own) and own == policy.memory  # TensorFlow is asked what all are, as one of them
    kept = (request for request in policy if not isinstance(request, Memory))
    return Setup(
        runner=runner,
        inheritance=inheritance(lease.environment),
        policy=Policy((*kept, *others.memory)) if together else policy,
        frameworks="all" if together else "tensorflow",
        other_frameworks=NOTHING if together else others,
        snapshot=lease.snapshot,
        claim=lease.number,
    )


def _for_all(call: Call, policy: Policy) -> Policy:
    """Return what a call asks of every framework, with a memory limit as its own policy has it."""
    words = Policy(tuple(request for request in call.for_all if isinstance(request, Memory | Reset)))
    if words.memory and not set(words.memory) <= set(policy.memory):  # in bytes, of GPUs of its own
        return Policy(policy.memory)
    return words


def function_runner() -> str:
    """Return the runner of functions: if IPython runs here, with displays that are sent to this process."""
    return "tfgpu_magic.isolate." + ("process.worker:call" if shell() is None else "process.shell:call")


def lease_of_own(run: Run) -> AbstractContextManager[Lease]:
    """Return a lease of GPUs that no other call of ours has, while the run is wanted; of none if none are asked."""
    call = run.call
    if call.gpus != 0:
        return LEASES.lease(LeaseRequest(call.policy, call.gpus, lambda: not run.stopped))
    cpus = engine.inherited().then(call.policy).cpus  # there is no GPU for the other requests
    return contextlib.nullcontext(Lease(Policy(cpus), environment=showing(())))


def lease_as_here(run: Run) -> AbstractContextManager[Lease]:
    """Return a lease of the GPUs as this process would see them; nothing is read, and nothing reserved."""
    return contextlib.nullcontext(Lease(engine.inherited().then(run.call.policy)))
