"""The parking of this process, a notebook's kernel or a session in a terminal: how it goes, and how it comes back.

It is parked when no cell runs, and when it has said of itself what only it can: a running cell, threads, NCCL, shared
memory. From then on a gate stands before all user code, and whatever comes first brings the GPU state back before it
runs: it never meets a GPU without it.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tfgpu_magic.errors import MonitorError, Refused
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.frameworks.tensorflow.withheld import withhold
from tfgpu_magic.host import here, shell
from tfgpu_magic.host import magics as magics_of
from tfgpu_magic.leases import lease_file
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import facts, reported
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.gpu_state import NOBODY, Asker, GpuState
from tfgpu_magic.parking.inside import ipython, unblocked
from tfgpu_magic.parking.inside.coming_back import ComingBack
from tfgpu_magic.parking.inside.ending import Ending
from tfgpu_magic.parking.inside.gate import Block, Caller, Gate, NotBack
from tfgpu_magic.parking.inside.introspection import of_process
from tfgpu_magic.parking.inside.showing import Shown
from tfgpu_magic.parking.messages import ANSWER, ParkOutcome, Progress
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.parking.transfers import Park, Unpark
from tfgpu_magic.probe import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfgpu_magic.parking.checks import Inside
    from tfgpu_magic.parking.reported import ParkedProcess

FINISH_TIMEOUT = 10.0
"""Seconds in which the GPUs do what they were given before; the lock gives them as long again."""
QUIET_TIMEOUT = 2.0
"""Seconds in which a report of ours is made."""
CALL_OFF_TIMEOUT = 10.0
"""Seconds in which what cannot be called off any more ends."""

_finishing: list[threading.Thread] = []
"""Those that still wait for the GPUs, which only means that these work: /proc can be read all the same."""


class ProcessParking:
    """The parking of this process.

    Args:
        shell: IPython's shell.

    Attributes:
        active: when it came back last, by the monotonic clock.
        state: its GPU state.
    """

    def __init__(self, shell: Any) -> None:
        ways: list[Block] = [partial(ipython.block_cells, shell)]
        if hasattr(shell, "kernel"):
            asked: dict[str, Callable[[], Mapping[str, str]]] = {
                "park": lambda: {ANSWER: ParkOutcome().to_json()},  # it is so already
                "back": partial(self.asked, "back"),
                "stay": partial(self.asked, "stay"),
            }
            ways.append(partial(ipython.block_messages, shell.kernel, asked))
        self.active = time.monotonic()
        self._shell = shell
        self._gate = Gate(self._come, (*ways, partial(unblocked.block, shell)))
        self._withheld = Gate(self._come, ())  # of what TensorFlow would do meanwhile
        self._turn = threading.RLock()  # held while it is parked, or while it is decided who brings it back
        self.state = GpuState(os.getpid(), self._changed)
        self._coming: ComingBack | None = None
        self._without = False  # the gate was opened by hand
        self._ending = Ending(
            away=lambda: not self._there,
            restored=self._restored,
            suspend=self._suspend,
            save=lambda: shell.history_manager.writeout_cache(),
        )

    @property
    def parked(self) -> bool:
        """Whether its GPU state is away, or on its way, and also if cells run without it."""
        return self._gate.closed or self._without

    def park(
        self, tell: Callable[[Progress], None] = lambda _: None, *, unasked: bool = False, to_disk: bool = False
    ) -> ParkOutcome:
        """Park this process; no cell may run.

        Args:
            tell: takes each progress.
            unasked: whether nobody has asked for it.
            to_disk: whether it goes to disk, and not to host memory.
        """
        self.arrange_end()  # before: its signals are uninterrupted's, too
        with uninterrupted() as interrupted, self._turn:  # a signal that ends the process waits for no turn of ours
            if self._gate.closed or self._away_for_good:
                return ParkOutcome(entry=self.state.known, refusals=self._away_for_good)
            try:
                asker = Asker(tell, lambda: not interrupted.is_set())
                return self._parked(self._gate.close(), asker, unasked=unasked, to_disk=to_disk)
            finally:
                self.state.attend()
                if self._there:
                    cuda.wake()
                    self._gate.open()

    def arrange_end(self) -> None:
        """Have this process end as one that was parked; signals do so only if this runs on the main thread."""
        self._ending.arrange(last_act=facts.open_module() is not False)

    def check(self) -> ParkOutcome:
        """Tell whether this process could be parked when its cell has ended, and why not."""
        with self._turn:
            if self._away_for_good:
                return ParkOutcome(refusals=self._away_for_good)
            try:
                cannot = self._gate.close()
            finally:
                self._gate.open()
        return self._way_out(of_process(threads=cannot)).check()

    def _parked(self, cannot: tuple[str, ...], asker: Asker, **how: bool) -> ParkOutcome:
        inside = of_process(busy=unblocked.cell_runs(self._shell), threads=cannot)
        if inside.against:
            return self._way_out(inside).check()
        still: why.Refusal | None = why.STILL_WORKING(FINISH_TIMEOUT)
        if magics_of(self._shell).idle_release.put_off():
            still = quieten(FINISH_TIMEOUT, QUIET_TIMEOUT)
        if still is not None:
            return ParkOutcome(refusals=(still,))
        return self._way_out(inside, asker, **how).park()

    def _way_out(self, inside: Inside, asker: Asker = NOBODY, **how: bool) -> Park:
        allowed = magics_of(self._shell).parking_on_open_module
        return Park(self.state, inside, allow_open_module=allowed, asker=asker, **how)

    def _way_back(self, asker: Asker) -> ParkOutcome:
        """Bring the state back."""
        try:
            return Unpark(self.state, lease_file.TABLE, asker=asker).unpark()
        finally:
            self.state.attend()

    def _come(self, way: Caller) -> None:
        """Bring the state back for user code, in any thread, or wait until another thread has.

        Raises:
            NotBack: it is still away.
        """
        if way is Caller.BY_HAND:
            self._go_on_without()
            return
        shown = Shown(self._shell, back=True)
        try:
            with interruptible():
                coming = self._joined(way)
                if coming is None:
                    return
                try:
                    outcome = coming.outcome(shown if way is Caller.CELL else lambda _: None)
                except KeyboardInterrupt:
                    coming.call_off(CALL_OFF_TIMEOUT)
                    raise
                finally:
                    coming.leave()
        except KeyboardInterrupt:
            raise NotBack(parking.interrupted(here(), parked=self._gate.closed)) from None
        except MonitorError as error:
            raise NotBack(parking.unasked(str(error), here())) from None
        if self._gate.closed:
            raise NotBack(parking.not_back(outcome.refusals, here()))
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
                self._coming = ComingBack(self._way_back)
            return self._coming

    def _changed(self, known: ParkedProcess | None) -> None:
        """Report where the state is, and open the gate where it is back; on the thread that moves it."""
        with contextlib.suppress(Exception):  # whatever it is, the state is moved all the same
            reported.post(known)
        if known is None or known.phase is Phase.BACK:
            with self._turn:
                self._open()

    @property
    def _lost(self) -> bool:
        return self.state.known is not None and self.state.known.phase is Phase.FAILED

    @property
    def _away_for_good(self) -> tuple[why.Refusal, ...]:
        """Why nothing else is to be done here, unless a cell asks for it: the state is lost, or cells run without."""
        return (why.LOST(),) if self._lost else (why.WITHOUT_GPU(),) if self._without else ()

    @property
    def _there(self) -> bool:
        return not (self.state.away or self._lost)

    def _go_on_without(self) -> None:
        """Open the gate by hand: what is in host memory can be saved, whatever keeps the GPU state away.

        It waits for nobody. Nothing of ours calls the driver, and TensorFlow refuses to. A return that is on its way
        may end well meanwhile, and then all is as before.
        """
        if self._gate.closed:
            self._without = True
            self._withheld.open()
            try:
                withhold(self._withheld.replace, parking.lost(here()) if self._lost else parking.withheld(here()))
            finally:
                self._gate.open()
            if self._there:  # since a moment ago
                self._open()

    def asked(self, what: str, before: float = math.inf) -> Mapping[str, str]:
        """Do what another process asks, and return what the reply to its message has of that.

        Args:
            what: to ``park``, to come ``back``, or to ``stay``.
            before: when the question is too old, in seconds since the epoch.
        """
        do = {"park": self.park, "back": self._come_back, "stay": self._stay}[what]
        refused = why.BUSY() if time.time() > before else None
        if what == "park" and getattr(magics_of(self._shell), "parking", "off") == "off":
            refused = why.OFF()
        try:
            outcome = do() if refused is None else ParkOutcome(refusals=(refused,))
        except MonitorError as error:
            outcome = ParkOutcome(refusals=(why.ERROR(str(error)),))
        return {ANSWER: outcome.to_json()}

    def _come_back(self) -> ParkOutcome:
        """Bring the state back, or wait until another thread has, for whom another process asks."""
        if self._without:
            return ParkOutcome(refusals=(why.WITHOUT_GPU(),))
        coming = self._joined(Caller.MESSAGE)
        if coming is None:
            return ParkOutcome(entry=self.state.known)
        try:
            return coming.outcome()
        finally:
            coming.leave()

    def _stay(self) -> ParkOutcome:
        """Call off what waits for the state to come back, for whomever it waits."""
        if self._coming is not None:
            self._coming.call_off()
        return ParkOutcome()

    def bring_back(self) -> None:
        """Bring the state back in a cell that runs without it.

        Raises:
            Refused: it is still away, and the cell goes on without.
        """
        with self._turn:  # a return that was on its way may have ended
            (self._open if self._there else self._gate.close)()
        try:
            self._come(Caller.CELL)
        except NotBack as error:
            self._go_on_without()
            raise Refused(str(error), verdict="") from None
        if self.parked:
            raise Refused(parking.lost(here()), verdict="")

    def _open(self) -> None:
        self._without = False
        self._withheld.open()
        self.active = time.monotonic()
        cuda.wake()
        self._gate.open()

    def _restored(self) -> bool:
        """Tell whether the end of this process, as it is or may be in a moment, may stop the machine."""
        known = self.state.known
        if known is None or known.phase is Phase.FAILED or facts.open_module() is False:
            return False
        if known.phase is Phase.PARKED:
            return self._coming is not None and not self._coming.over
        return known.returns > 0 or self.state.away

    def _suspend(self) -> None:
        """Park this process at its end, whatever it does."""
        self._stay()
        with self.state.alone(NOBODY):  # a return that is on its way ends first
            cuda.quieten(QUIET_TIMEOUT)
            Park(self.state, None).park()


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
    """Raise no `KeyboardInterrupt` here, and give what is set instead: nothing is to be left half done.

    A signal that ends the process does so afterwards, unless it needs no Python to.
    """
    interrupted, ended = threading.Event(), list[int]()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: interrupted.set())}
    for number in filter(lambda one: callable(signal.getsignal(one)), (signal.SIGTERM, signal.SIGHUP)):
        before[number] = signal.signal(number, lambda number, _: ended.append(number))
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if ended:
            signal.raise_signal(ended[0])


def of(shell: Any) -> ProcessParking:
    """Return the parking of this process, of which there is one."""
    global _notebook
    if _notebook is None:
        _notebook = ProcessParking(shell)
    return _notebook


_notebook: ProcessParking | None = None


def answer(what: str, before: float = math.inf) -> None:
    """Do what another process asks when the cell has ended that runs now, which is its question (`ask_kernel`).

    As long as this kernel is parked it runs no such cell, and the gate answers. The arguments are as in
    `ProcessParking.asked`.
    """
    ipython.at_end_of_cell(shell().kernel, partial(of(shell()).asked, what, before))


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
