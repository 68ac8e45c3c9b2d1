"""The parking of this process, a notebook's kernel or a session in a terminal: how it goes, and how it comes back.

It is parked when no cell runs, and when it has said of itself what only it can: a running cell, threads, NCCL, shared
memory. From then on a gate stands before all user code, and whatever comes first brings the GPU state back before it
runs: it never meets a GPU without it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from functools import partial
from typing import Any

from tfgpu_magic.errors import MonitorError, Refused
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.frameworks.tensorflow.withheld import withhold
from tfgpu_magic.host import here, shell
from tfgpu_magic.host import magics as magics_of
from tfgpu_magic.leases import lease_file
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import facts, reported
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.gpu_state import NOBODY, Asker, GpuState
from tfgpu_magic.parking.inside import ipython, unblocked
from tfgpu_magic.parking.inside.ending import Ending
from tfgpu_magic.parking.inside.gate import Block, Gate, NotBack
from tfgpu_magic.parking.inside.introspection import of_process
from tfgpu_magic.parking.inside.showing import Shown
from tfgpu_magic.parking.messages import ParkOutcome, Progress
from tfgpu_magic.parking.reported import ParkedProcess
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.parking.transfers import Park, Unpark, unsettled
from tfgpu_magic.probe import within

FINISH_TIMEOUT = 10.0  # seconds in which the GPUs do what they were given before; the lock gives them as long again
QUIET_TIMEOUT = 2.0  # seconds in which a report of ours is made
CALL_OFF_TIMEOUT = 10.0  # seconds in which what cannot be called off any more ends

_POLL = 0.2  # seconds between two looks how a return gets on
_finishing: list[threading.Thread] = []
"""Those that still wait for the GPUs, which only means that these work: /proc can be read all the same."""


class ComingBack:
    """An attempt to come back, on a thread of its own, for which several may wait; called off when nobody does."""

    def __init__(self, unpark: Callable[[Asker], ParkOutcome]) -> None:
        self._unpark = unpark
        self._progress = Progress(step="begins")
        self._outcome = futures.Future[ParkOutcome]()
        self._turn = threading.RLock()  # a signal may end the process while it is held
        self._waiters = 1
        threading.Thread(target=self._work, name="tfgpu_magic-unpark", daemon=True).start()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._outcome.done()

    def join(self) -> bool:
        """Tell whether somebody else can still wait for its outcome, and has to."""
        with self._turn:
            joins = self._waiters > 0 and not self.over
            self._waiters += joins
            return joins

    def call_off(self, seconds: float = 0.0) -> None:
        """Have it end for all who wait, unless it can no longer be called off; wait so many seconds for its end."""
        with self._turn:
            self._waiters = 0
        futures.wait([self._outcome], seconds)

    def outcome(self, show: Callable[[Progress], None] = lambda _: None) -> ParkOutcome:
        """Wait for what comes of it, and have each progress shown; each of its waiters does so once."""
        try:
            while True:
                try:
                    return self._outcome.result(_POLL)
                except futures.TimeoutError:
                    show(self._progress)
        except KeyboardInterrupt:
            self.call_off(CALL_OFF_TIMEOUT)
            raise
        finally:
            with self._turn:
                self._waiters = max(0, self._waiters - 1)

    def _work(self) -> None:
        try:
            outcome = self._unpark(Asker(partial(setattr, self, "_progress"), lambda: self._waiters > 0))
        except Exception as error:  # those who wait must hear of it
            said = f"The GPU state could not be brought back ({str(error) or type(error).__name__}), and is not lost."
            outcome = ParkOutcome(refusals=(why.ERROR(said),))
        self._outcome.set_result(outcome)


class ProcessParking:
    """The parking of this process, in which there is this shell of IPython's."""

    def __init__(self, shell: Any) -> None:
        ways: list[Block] = [partial(ipython.block_cells, shell, self._go_on_without), partial(unblocked.block, shell)]
        if hasattr(shell, "kernel"):
            ways.append(partial(ipython.block_messages, shell.kernel, self.asked))
        self.active = time.monotonic()  # when it came back last
        self._shell = shell
        self._gate = Gate(self._come, ways)
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

    # --- where it is ---

    @property
    def parked(self) -> bool:
        """Whether its GPU state is away, or on its way, and also if cells run without it."""
        return self._gate.closed or self._without

    @property
    def _lost(self) -> bool:
        return self.state.phase is Phase.FAILED

    @property
    def _there(self) -> bool:
        return not (self.state.away or self._lost)

    def _elsewhere(self) -> ParkOutcome | None:
        """Return what is said to who wants it parked that is not here: it is so already, or why that cannot be done."""
        known, phase = self.state.known, self.state.phase
        if self._lost or self._without:
            refused = why.LOST() if self._lost else why.WITHOUT_GPU()
        elif not self._gate.closed:
            return None
        elif phase is Phase.PARKED:
            return ParkOutcome(entry=known)
        else:
            refused = unsettled(phase) if phase in (Phase.LOCKING, Phase.CHECKPOINTING) else why.RETURNS()
        return ParkOutcome(entry=known, refusals=(refused,))

    def _changed(self, known: ParkedProcess | None) -> None:
        """Report where the state is, and open the gate where it is back; on the thread that moves it."""
        with contextlib.suppress(Exception):  # whatever it is, the state is moved all the same
            reported.post(known)
        if known is None or known.phase is Phase.BACK:
            with self._turn:
                self._open()

    def _open(self) -> None:
        self._without = False
        self._withheld.open()
        self.active = time.monotonic()
        cuda.wake()
        self._gate.open()

    # --- it goes ---

    def park(
        self, tell: Callable[[Progress], None] = lambda _: None, *, unasked: bool = False, to_disk: bool = False
    ) -> ParkOutcome:
        """Park this process, asked for or not, and have each progress told; no cell may run."""
        self.arrange_end()  # before: its signals are uninterrupted's, too
        with uninterrupted() as interrupted, self._turn:  # a signal that ends the process waits for no turn of ours
            if (elsewhere := self._elsewhere()) is not None:
                return elsewhere
            try:
                cannot = self._gate.close()  # before: a cell may begin on another thread until then
                inside = self._inside(cannot, busy=unblocked.cell_runs(self._shell))
                quiet = None if inside.against else self._quieten()
                if quiet is not None:
                    return ParkOutcome(refusals=(quiet,))
                asker = Asker(tell, lambda: not interrupted.is_set())
                out = Park(self.state, inside, unasked=unasked, to_disk=to_disk, asker=asker)
                return out.check() if inside.against else out.park()
            finally:
                self.state.attend()
                if self._there:
                    cuda.wake()
                    self._gate.open()

    def check(self) -> ParkOutcome:
        """Tell whether this process could be parked when its cell has ended, and why not."""
        with self._turn:
            if (elsewhere := self._elsewhere()) is not None:
                return elsewhere
            try:
                cannot = self._gate.close()
            finally:
                self._gate.open()
        return Park(self.state, self._inside(cannot)).check()

    def _inside(self, cannot: tuple[str, ...], *, busy: bool = False) -> Inside:
        allowed = magics_of(self._shell).parking_on_open_module
        return of_process(busy=busy, threads=cannot, allow_open_module=allowed)

    def _quieten(self) -> why.Refusal | None:
        release = magics_of(self._shell).idle_release
        return quieten(FINISH_TIMEOUT, QUIET_TIMEOUT) if release.put_off() else why.STILL_WORKING(FINISH_TIMEOUT)

    # --- it comes back ---

    def _come(self, *, in_cell: bool = False) -> None:
        """Bring the state back for user code, in any thread, or wait until another has; `NotBack`: it is still away."""
        shown = Shown(self._shell, back=True)
        try:
            with interruptible():
                coming = self._joined(in_cell=in_cell)
                if coming is None:
                    return
                outcome = coming.outcome(shown if in_cell else lambda _: None)
        except KeyboardInterrupt:
            raise NotBack(parking.interrupted(here(), parked=self._gate.closed)) from None
        if self._gate.closed:
            raise NotBack(parking.not_back(outcome.refusals, here()))
        shown.end(parking.back(outcome, shown.seconds))

    def _joined(self, *, in_cell: bool = False) -> ComingBack | None:
        """Return the attempt to wait for; None where user code may run."""
        with self._turn:  # which another thread has while it parks
            if not self._gate.closed:
                return None
            if self._lost and in_cell:  # which can still save what is in host memory
                self._go_on_without()
                print(parking.lost(here()), file=sys.stderr)
                return None
            if self._coming is None or not self._coming.join():
                self._coming = ComingBack(self._unpark)
            return self._coming

    def _unpark(self, asker: Asker) -> ParkOutcome:
        try:
            return Unpark(self.state, lease_file.TABLE, asker=asker).unpark()
        finally:
            self.state.attend()

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

    def bring_back(self) -> None:
        """Bring the state back in a cell that runs without it; `Refused`: it is still away, and the cell goes on."""
        with self._turn:  # a return that was on its way may have ended
            (self._open if self._there else self._gate.close)()
        try:
            self._come(in_cell=True)
        except NotBack as error:
            self._go_on_without()
            raise Refused(str(error), verdict="") from None
        if self.parked:
            raise Refused(parking.lost(here()), verdict="")

    # --- others ask ---

    def asked(self, what: str, before: float | None = None, *, parks: bool = False) -> ParkOutcome:
        """Do what another process asks, and return what came of it.

        Args:
            what: to ``park``, to come ``back``, or to ``stay``.
            before: when the question is too old, in seconds since the epoch; None is never.
            parks: whether this is the thread that runs the cells, so that none can begin while it is parked.
        """
        try:
            if what == "stay":
                self._stay()
                return ParkOutcome()
            if what == "back":
                coming = self._joined()
                refused = (why.WITHOUT_GPU(),) if self._without else ()
                return coming.outcome() if coming else ParkOutcome(entry=self.state.known, refusals=refused)
            with self._turn:
                elsewhere = self._elsewhere()
            if elsewhere is not None:
                return elsewhere
            if not parks or (before is not None and time.time() > before):
                return ParkOutcome(refusals=(why.BUSY(),))
            if getattr(magics_of(self._shell), "parking", "off") == "off":
                return ParkOutcome(refusals=(why.OFF(),))
            return self.park()
        except MonitorError as error:
            return ParkOutcome(refusals=(why.ERROR(str(error)),))

    def _stay(self) -> None:
        """Call off what waits for the state to come back, for whomever it waits."""
        if self._coming is not None:
            self._coming.call_off()

    # --- it ends ---

    def arrange_end(self) -> None:
        """Have this process end as one that was parked; signals do so only if this runs on the main thread."""
        self._ending.arrange(last_act=facts.open_module() is not False)

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
def _handled(handlers: Mapping[int, Callable[..., object]]) -> Iterator[None]:
    """Have signals call other functions in the block, where that runs on the main thread, whatever they do now."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()} if main else {}
    try:
        yield
    finally:
        for number, handler in reversed(before.items()):
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def interruptible() -> contextlib.AbstractContextManager[None]:
    """Let Ctrl-C and Jupyter's interrupt raise `KeyboardInterrupt` in a block."""
    return _handled({signal.SIGINT: signal.default_int_handler})


@contextlib.contextmanager
def uninterrupted() -> Iterator[threading.Event]:
    """Raise no `KeyboardInterrupt` here, and give what is set instead: nothing is to be left half done.

    A signal that ends the process does so afterwards, unless it needs no Python to.
    """
    interrupted, ended = threading.Event(), list[int]()
    ends = [number for number in (signal.SIGTERM, signal.SIGHUP) if callable(signal.getsignal(number))]
    late: dict[int, Callable[..., object]] = dict.fromkeys(ends, lambda number, _: ended.append(number))
    try:
        with _handled({signal.SIGINT: lambda *_: interrupted.set(), **late}):  # which interrupts none of the others
            yield interrupted
    finally:
        if ended:
            signal.raise_signal(ended[0])


def of(shell: Any) -> ProcessParking:
    """Return the parking of this process, of which there is one."""
    global _notebook
    if _notebook is None:
        _notebook = ProcessParking(shell)
    return _notebook


_notebook: ProcessParking | None = None


def answer(what: str, before: float | None = None) -> ParkOutcome:
    """Do what another process asks of this one while it runs no cell, as `ProcessParking.asked`."""
    return of(shell()).asked(what, before, parks=True)


def quieten(finish: float, report: float) -> why.Refusal | None:
    """Wait until the GPUs have done all that this process has asked for, and have nothing of ours ask for more.

    The GPUs, and a report of ours, may take so many seconds; it is returned why they may still be at work.
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
