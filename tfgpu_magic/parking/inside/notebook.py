"""The parking of this process, a notebook's kernel or a session in a terminal: how it goes, and how it comes back.

It is parked when no cell runs, and when it has said of itself what only it can: a running cell, threads, NCCL, shared
memory. From then on a gate stands before all user code, and whatever comes first brings the GPU state back before it
runs: it never meets a GPU without it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tfgpu_magic.errors import MonitorError, Refused
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.frameworks.tensorflow.withheld import withhold
from tfgpu_magic.host import here, shell
from tfgpu_magic.host import magics as magics_of
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.owners.pids import notebook_of
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import checks, client, record, reported
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.client import ComingBack
from tfgpu_magic.parking.inside import ipython, threads
from tfgpu_magic.parking.inside.gate import Block, Caller, Gate, NotBack
from tfgpu_magic.parking.inside.introspection import read_inside
from tfgpu_magic.parking.inside.showing import Shown
from tfgpu_magic.parking.messages import ANSWER, COME_BACK, STAY, ParkOutcome, Progress, Request
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.probe import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfgpu_magic.model.report import HeldMemory
    from tfgpu_magic.parking.record import ParkedProcess
    from tfgpu_magic.parking.refusals import Refusal

FINISH_TIMEOUT = 10.0
"""Seconds in which the GPUs do what they were given before; the lock gives them as long again."""
QUIET_TIMEOUT = 2.0
"""Seconds in which a report of ours is made."""
QUESTION_TIMEOUT = 3.0
"""Seconds that a completion waits for the state: an answer that comes later is no help."""
CALL_OFF_TIMEOUT = 10.0
"""Seconds in which what cannot be called off any more ends."""
EXIT_TIMEOUT = 2.5
"""Seconds that a process which ends takes to bring its state back: after five Jupyter Server kills it."""
CAREFUL_EXIT_TIMEOUT = 60.0
"""The same under the open kernel module, where an end without CUDA's own, after a return, may stop the machine."""

WATCH_EVERY = 2.0
"""Seconds between two looks at the record of what is parked, while it is."""

_LOST = ParkOutcome(refusals=(why.LOST(),))
_IN_DOUBT = {why.ELSEWHERE, why.HOLDS_NOTHING}
"""What another parker says of a process that one has parked which died with its record."""
_finishing: list[threading.Thread] = []
"""Those that still wait for the GPUs, which only means that these work: /proc can be read all the same."""


class ProcessParking:
    """The parking of this process.

    Args:
        shell: IPython's shell.

    Attributes:
        active: when it came back last, by the monotonic clock.
    """

    def __init__(self, shell: Any) -> None:
        ways: list[Block] = [partial(ipython.block_cells, shell)]
        if hasattr(shell, "kernel"):
            asked = {COME_BACK: partial(_answered, self.come_back), STAY: partial(_answered, self.stay)}
            ways.append(partial(ipython.block_messages, shell.kernel, asked))
        self.active = time.monotonic()
        self._shell = shell
        self._gate = Gate(self._come, (*ways, threads.block))
        self._turn = threading.RLock()  # held while it is parked, or while it is decided who brings it back
        self._held: tuple[HeldMemory, ...] = ()
        self._coming: ComingBack | None = None
        self._parkings = 0  # what comes late of a return says nothing of the next parking
        self._lost = False
        self._without = False  # the gate was opened by hand
        self._watching = False

    @property
    def parked(self) -> bool:
        """Whether its GPU state is away, or on its way, and also if cells run without it."""
        return self._gate.closed or self._without

    def park(self, tell: Callable[[Progress], None] = lambda _: None) -> ParkOutcome:
        """Park this process; no cell may run.

        Args:
            tell: takes each progress.

        Raises:
            MonitorError: the parker cannot be asked.
        """
        with self._turn, uninterrupted() as interrupted:
            if self._gate.closed:
                return ParkOutcome(entry=client.parked())
            if self._lost:
                return _LOST
            if self._without:
                return ParkOutcome(refusals=(why.WITHOUT_GPU(),))
            self._parkings += 1
            atexit.unregister(self._leave)
            atexit.register(self._leave)  # what was registered last is called first
            outcome: ParkOutcome | None = None
            begun: ParkedProcess | None = None

            def told(progress: Progress) -> None:
                nonlocal begun
                if progress.step != "checks":
                    begun = client.parked() or begun
                    _post()
                tell(progress)

            try:
                outcome = self._parked(self._gate.close(), told, interrupted)
            finally:
                self._open_unless(_away(outcome, begun))
                _post()
            return outcome

    def check(self) -> ParkOutcome:
        """Tell whether this process could be parked when its cell has ended, and why not.

        Raises:
            MonitorError: the parker cannot be asked.
        """
        with self._turn:
            if self._lost:
                return _LOST
            if self._without:
                return ParkOutcome(refusals=(why.WITHOUT_GPU(),))
            try:
                cannot = self._gate.close()
            finally:
                self._gate.open()
        inside = read_inside(self._shell, cannot)
        return client.check(
            inside=replace(inside, busy=False),
            allow_open_module=magics_of(self._shell).parking_on_open_module,
        )

    def _parked(
        self, cannot: tuple[str, ...], tell: Callable[[Progress], None], interrupted: threading.Event
    ) -> ParkOutcome:
        magics = magics_of(self._shell)
        inside, allowed = read_inside(self._shell, cannot), magics.parking_on_open_module
        if any(checks.not_ready(inside)):
            return client.check(inside=inside, allow_open_module=allowed)
        still: why.Refusal | None = why.STILL_WORKING(FINISH_TIMEOUT)
        if magics.idle_release.put_off():
            still = quieten(FINISH_TIMEOUT, QUIET_TIMEOUT)
        if still is not None:
            return ParkOutcome(refusals=(still,))
        name = notebook_of(self._shell)
        request = Request(deed="park", inside=inside, name=name, allow_open_module=allowed)
        return client.ask(request, tell=tell, wanted=lambda: not interrupted.is_set())

    def _open_unless(self, away: ParkedProcess | None) -> None:
        """Open the gate after an attempt to park, unless the state is away, or may be."""
        if away is None:
            cuda.wake()
            self._gate.open()
            return
        self._held = away.held
        if not self._watching:
            self._watching = True
            _in_background(self._watch, "watch")

    def _come(self, way: Caller) -> None:
        """Bring the state back for user code, in any thread, or wait until another thread has.

        Raises:
            NotBack: it is still away.
        """
        if way is Caller.BY_HAND:
            self._go_on_without()
            return
        shown = Shown(self._shell)
        try:
            with interruptible():
                coming = self._joined(way)
                if coming is None:
                    return
                try:
                    outcome = self._outcome(coming, way, shown)
                finally:
                    coming.leave()
        except KeyboardInterrupt:
            raise NotBack(parking.interrupted(here(), parked=self._gate.closed)) from None
        except MonitorError as error:
            raise NotBack(parking.unasked(str(error), here())) from None
        if self._gate.closed:
            raise NotBack(parking.not_back(() if outcome is None else outcome.refusals, here()))
        if outcome is not None:
            shown.end(parking.back(outcome, shown.seconds))

    def _joined(self, way: Caller) -> ComingBack | None:
        """Return the attempt to wait for; None where user code may run."""
        with self._turn:  # which another thread has while it parks
            if not self._gate.closed:
                return None
            if self._lost and way is Caller.CELL:  # which can still save what is in host memory
                self._go_on_without()
                print(parking.lost(here()), file=sys.stderr)
                return None
            if self._coming is None or not self._coming.join():
                self._coming = ComingBack(held=self._held, settle=partial(self._settle, self._parkings))
            return self._coming

    def _outcome(self, coming: ComingBack, way: Caller, shown: Shown) -> ParkOutcome | None:
        """Wait for what comes of a return; who interrupts it hears of its end."""
        if way is Caller.QUESTION:
            return coming.outcome(QUESTION_TIMEOUT)
        show: Callable[[Progress], None] = shown.back if way is Caller.CELL else lambda _: None
        try:
            return coming.outcome(None, show)
        except KeyboardInterrupt:
            coming.call_off()
            coming.outcome(CALL_OFF_TIMEOUT, show)
            raise

    def _settle(self, parking: int, outcome: ParkOutcome) -> None:
        """Open the gate where the state is back, unless it went away again; on the thread that has asked for it."""
        back = client.is_back(outcome)
        with self._turn:
            if parking == self._parkings:
                self._lost = why.LOST.among(outcome.refusals)
                if back:
                    self._open()
        _post()

    def _watch(self) -> None:
        """Open the gate, too, when another process has brought the state back: a page's button, say."""
        while True:
            time.sleep(WATCH_EVERY)
            with self._turn:
                self._watching = self.parked and not self._lost
                if not self._watching:
                    return
                entry = client.parked()
                if entry is not None and entry.phase is Phase.BACK:
                    self._open()
            _post()

    def _go_on_without(self) -> None:
        """Open the gate by hand: what is in host memory can be saved, whatever keeps the GPU state away.

        It waits for nobody. Nothing of ours calls the driver, and TensorFlow refuses to. A return that is on its way
        may end well meanwhile, and then all is as before.
        """
        if self._gate.closed:
            self._without = True
            self._gate.open()
            withhold(self._gate.replace, parking.lost(here()) if self._lost else parking.withheld(here()))

    def come_back(self) -> ParkOutcome:
        """Bring the state back, or wait until another thread has, for whom another process asks.

        Raises:
            MonitorError: the parker cannot be asked.
        """
        if self._without:
            return ParkOutcome(refusals=(why.WITHOUT_GPU(),))
        coming = self._joined(Caller.MESSAGE)
        if coming is None:
            return ParkOutcome(entry=client.parked())
        try:
            return coming.outcome(None) or ParkOutcome()
        finally:
            coming.leave()

    def stay(self) -> ParkOutcome:
        """Call off what waits for the state to come back, for whomever it waits."""
        coming = self._coming
        if coming is not None:
            coming.call_off()
        return ParkOutcome()

    def bring_back(self) -> None:
        """Bring the state back in a cell that runs without it.

        Raises:
            Refused: it is still away, and the cell goes on without.
        """
        self._gate.close()
        try:
            self._come(Caller.CELL)
        except NotBack as error:
            self._go_on_without()
            raise Refused(str(error), verdict="") from None
        if self.parked:
            raise Refused(parking.lost(here()), verdict="")

    def _open(self) -> None:
        self._without = False
        self.active = time.monotonic()
        cuda.wake()
        self._gate.open()

    def _leave(self) -> None:
        """Before the process ends, bring its state back, so that what runs at its end may use it; else end at once.

        What Python and libraries do at the end may call CUDA, and would wait for ever, or crash.
        """
        if not (self.parked or self._lost):
            return
        if threading.current_thread() is threading.main_thread():
            # The end is under way: Jupyter Server's comes after half of the time that it gives.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        careful = magics_of(self._shell).parking_on_open_module
        timeout = CAREFUL_EXIT_TIMEOUT if careful else EXIT_TIMEOUT
        end = time.monotonic() + timeout
        with contextlib.suppress(MonitorError, KeyboardInterrupt):
            if careful or client.seconds_back(sum(one.size for one in self._held)) < timeout:  # a copy cannot be ended
                outcome = client.unpark(held=self._held, wanted=lambda: time.monotonic() < end)  # starts no thread
                if outcome.done:
                    self._open()
                    return
        with contextlib.suppress(Exception):
            self._shell.history_manager.writeout_cache()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and Jupyter's interrupt raise `KeyboardInterrupt` here, whatever else is to be done with them now."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


@contextlib.contextmanager
def uninterrupted() -> Iterator[threading.Event]:
    """Raise no `KeyboardInterrupt` here, and give what is set instead: nothing is to be left half done."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


def _away(outcome: ParkOutcome | None, begun: ParkedProcess | None) -> ParkedProcess | None:
    """Return what is known of this process if its state is away, or may be; None where it has its state.

    The record alone does not tell: the parker may die, and its directory be removed, while the state is on its way.

    Args:
        outcome: what the parker says; None where it has not answered.
        begun: what the record said when the state was about to go.
    """
    for entry in (None if outcome is None else outcome.entry, client.parked()):
        if entry is not None and (entry.parked or entry.phase is Phase.FAILED):
            return entry
    in_doubt = outcome is None or any(one.reason in _IN_DOUBT for one in outcome.refusals)
    return begun if in_doubt else None


def _post() -> None:
    """Have this process report how far its parking has come, by the parker's record."""
    with contextlib.suppress(MonitorError), BoardDirectory() as place:
        found = record.read_all(place)
        reported.post(next((one for one in found.entries.values() if one.pid == os.getpid()), None), found.rates)


def of(shell: Any) -> ProcessParking:
    """Return the parking of this process, of which there is one."""
    global _notebook
    if _notebook is None:
        _notebook = ProcessParking(shell)
    return _notebook


_notebook: ProcessParking | None = None


def _in_background(do: Callable[[], None], what: str) -> None:
    threading.Thread(target=do, name=f"tfgpu_magic-{what}", daemon=True).start()


def answer(before: float) -> None:
    """Park this kernel when the cell has ended that runs now, which is another one's question (`ask_kernel`).

    Args:
        before: when the question is too old, in seconds since the epoch.
    """
    own = shell()
    refused = _refused(magics_of(own), before)
    do = of(own).park if refused is None else lambda: ParkOutcome(refusals=(refused,))
    ipython.at_end_of_cell(own.kernel, partial(_answered, do))


def answer_back() -> None:
    """Say that this kernel is back; as long as it is parked it runs no cell that asks for it, and the gate answers."""
    ipython.at_end_of_cell(shell().kernel, partial(_answered, of(shell()).come_back))


def answer_stay() -> None:
    """Say that nothing waits for it any more, as `answer_back`."""
    ipython.at_end_of_cell(shell().kernel, partial(_answered, ParkOutcome))


def _answered(do: Callable[[], ParkOutcome]) -> Mapping[str, str]:
    """Do what another process asks, and return what its message's reply has of that."""
    try:
        outcome = do()
    except MonitorError as error:
        outcome = ParkOutcome(refusals=(why.NO_HELPER(str(error)),))
    return {ANSWER: outcome.to_line().decode()}


def _refused(magics: object, before: float) -> Refusal | None:
    if getattr(magics, "parking", "off") == "off":
        return why.OFF()
    return why.BUSY() if time.time() > before else None


def quieten(finish: float, report: float) -> why.Refusal | None:
    """Wait until the GPUs have done all that this process has asked for, and have nothing of ours ask for more.

    Args:
        finish: seconds that the GPUs may take.
        report: seconds that a report of ours may take.

    Returns:
        Why they may still be at work; None where they are not.
    """

    def work() -> bool:
        registry.finish()
        return True

    try:
        done = within(finish, work, _finishing)
    except Exception as error:  # the user's own, of an operation that was still to be done: they are yet to see it
        return why.FAILED(str(error) or type(error).__name__)
    if not done:
        return why.STILL_WORKING(finish)
    return None if cuda.quieten(report) else why.STILL_WORKING(report)
