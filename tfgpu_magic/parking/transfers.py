"""What is done to this process: it is parked, and brought back.

On the way out: checks, the lock, the checks again now that nothing of it can change, and the copy to the host. On the
way back: its turn and room, the room taken, and the copy into it at once. A copy that finds too little room fails for
good, so none is tried on hope: the room was seen to be free, it is claimed, and it is held by a placeholder until the
moment before.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, ClassVar

from tfgpu_magic.leases.lease_file import LeaseTable
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.parking import checks, driver, facts, host_memory_claims
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.disk import DiskPlace
from tfgpu_magic.parking.driver import DriverError
from tfgpu_magic.parking.driver_worker import TROUBLES, Died, DriverWorker
from tfgpu_magic.parking.gpu_state import NOBODY, Asker, GpuState, refusal
from tfgpu_magic.parking.messages import ParkOutcome, Progress
from tfgpu_magic.parking.reported import ParkedProcess
from tfgpu_magic.parking.room import Place, rooms
from tfgpu_magic.parking.states import UNSETTLED, CudaState, Phase
from tfgpu_magic.probe import within

TRIES = 3  # how often a return is begun again when a worker has died over it
_FINAL = (driver.OUT_OF_MEMORY, driver.NO_SUCH_PROCESS)
"""The errors of a restore that has failed for good: the first time, and every later time."""
_NOT_RUNNING = {
    CudaState.NO_CUDA: why.HOLDS_NOTHING(),
    CudaState.UNKNOWN: why.UNANSWERED("cuCheckpointProcessGetState"),
}
_AGAIN = 10.0  # seconds between two attempts to take room that the driver does not give, at most


class _NotDone(Exception):
    """Ends a transfer, with the process set right; its arguments are the refusals."""


@dataclass
class _Transfer:
    """One of the two ways, with who has asked for it."""

    _END: ClassVar[frozenset[Phase | None]]  # where there is nothing to do; None is a process that was never away

    state: GpuState
    _: KW_ONLY
    asker: Asker = NOBODY
    notes: tuple[why.Refusal, ...] = field(default=(), init=False)

    @property
    def _done(self) -> bool:
        return self.state.phase in self._END

    def _run(self, do: Callable[[], float]) -> ParkOutcome:
        """Do it, which takes the driver some seconds, unless it is done; whatever goes wrong, nothing stays locked."""
        refused: tuple[why.Refusal, ...] = ()
        seconds = 0.0
        with self.state.alone(self.asker) as alone:
            try:
                self._begin(alone=alone)
                seconds = 0.0 if self._done else do()
            except _NotDone as error:
                refused = error.args
            except TROUBLES as trouble:
                self._settle()
                refused = () if self._done else (refusal(trouble),)
        notes = () if refused else self.notes
        return ParkOutcome(entry=self.state.known, refusals=refused, seconds=seconds, notes=notes)

    def _begin(self, *, alone: bool) -> None:
        """Set the process right first; it ends here where it is called off meanwhile, or where nothing can be done."""
        if not alone:
            raise _NotDone(why.CANCELLED())
        self.state.settled(self.asker)
        if self.state.unsettled:
            self._go_on()
        if (phase := self.state.phase) in UNSETTLED | {Phase.FAILED}:
            raise _NotDone(unsettled(phase))

    def _settle(self) -> None:
        """Set the process right in bounded time; the driver takes back what was begun on disk once its worker ends."""
        known = self.state.known
        if known is not None and known.disk:
            self.state.settled(self.asker)
        else:
            self.state.settle()

    def _go_on(self) -> None:
        """End it here if nobody wants it any more."""
        if not self.asker.wanted():
            raise _NotDone(why.CANCELLED())


@dataclass
class Park(_Transfer):
    """The way out."""

    _END = frozenset({Phase.PARKED})

    inside: Inside | None  # what the process says of itself; None of one that ends, which nothing speaks against
    _: KW_ONLY
    unasked: bool = False  # whether nobody has asked for it, so that what would be said is a reason against it
    to_disk: bool = False  # whether it goes to disk, and not to host memory

    def check(self) -> ParkOutcome:
        """Tell whether the process could be parked, and why not."""

        def judge() -> float:
            self._judged()
            return 0.0

        known = self.state.known
        return ParkOutcome(entry=known) if known is not None and known.parked else self._run(judge)

    def park(self) -> ParkOutcome:
        """Park the process."""
        return self._run(self._lock)

    def _judged(self) -> tuple[HeldMemory, ...]:
        """Return what the process holds, unless there are reasons not to park it; what else is raised is a trouble."""
        looked, inside = self.state.look(), self.inside or Inside()
        read = partial(facts.read, self.state.pid, looked, inside, to_disk=self.to_disk)
        # What is read of a process that a driver holds may take until that ends.
        found = within(self.state.timeouts.look, read)
        if found is None:
            if self.inside is None:
                return ()
            raise _NotDone(why.UNANSWERED("/proc"))
        self.notes = checks.shortages(found)
        refused = checks.refusals(found) or (self.notes if self.unasked else ())
        if refused and self.inside is not None:
            raise _NotDone(*refused)
        return found.known

    def _lock(self) -> float:
        """Lock the process, which nothing else has locked, and park it; else it is not left locked."""
        state, times = self.state, self.state.timeouts
        self.asker.tell(Progress(step="checks"))
        held, found = self._judged(), state.state()
        if found is not CudaState.RUNNING:
            raise _NotDone(_NOT_RUNNING.get(found, why.ELSEWHERE()))
        with contextlib.nullcontext() if self.to_disk else host_memory_claims.claimed():
            self._go_on()
            state.move(Phase.LOCKING, held=held, disk=self.to_disk)
            self.asker.tell(Progress(step="locks"))
            try:
                state.worker().call("lock", state.pid, times.lock, seconds=times.lock + times.state)
                return self._copy(self._judged())
            except (_NotDone, DriverError) as error:
                state.settled(self.asker, times.state)
                if isinstance(error, DriverError) and error.code == driver.LOCK_TIMED_OUT:
                    raise _NotDone(why.STILL_WORKING(times.lock)) from None
                raise

    def _copy(self, held: tuple[HeldMemory, ...]) -> float:
        """Copy what a locked process holds to the host."""
        state = self.state
        self._go_on()
        if self.to_disk:
            made = facts.on_disk(DiskPlace.make)
            if isinstance(made, why.Refusal):
                raise _NotDone(made)
            state.file = made
        size = state.move(Phase.CHECKPOINTING, held=held).size
        step, seconds = ("copies to disk", None) if self.to_disk else ("copies out", state.seconds("checkpoint", size))
        self.asker.tell(Progress(step=step, size=size, seconds=seconds))
        try:
            took = state.copy(state.worker(), "checkpoint", [one.gpu for one in held])
        except DriverError:
            state.move(Phase.LOCKING)  # it has not gone, and the driver takes back what it had begun
            raise
        state.move(Phase.PARKED)
        return took


@dataclass
class Unpark(_Transfer):
    """The way back."""

    _END = frozenset({None, Phase.BACK})

    table: LeaseTable  # where it is written who waits for room

    def unpark(self) -> ParkOutcome:
        """Bring the process back, as soon as there is room for it."""
        return self._run(self._in_turn)

    @property
    def _parked(self) -> ParkedProcess:
        assert self.state.known is not None  # noqa: S101  # it is parked
        return self.state.known

    def _in_turn(self) -> float:
        """Bring the process back in its turn; if a worker has died over that and nothing has changed, by another."""
        place = Place(self.table, self.state.pid, self._parked.held)
        tries = TRIES
        try:
            while True:
                try:
                    return self._wait(place)
                except Died as died:
                    tries -= 1
                    if died.hung or not tries:
                        raise
                    self._settle()
                    if self._parked.phase is not Phase.PARKED:
                        raise
        finally:
            self.state.note(wanted=False)
            self.state.when_settled(place.leave)

    def _wait(self, place: Place) -> float:
        """Wait until it is the process's turn and there is room, and bring it back, unless something else has."""
        state, times, begun = self.state, self.state.timeouts, time.monotonic()
        if state.state() in (CudaState.RUNNING, CudaState.LOCKED):
            return self._set_right()
        pause = times.between
        while self.asker.wanted():
            snapshot = state.look()
            trouble = None if snapshot.error is None else why.NO_DRIVER(snapshot.error)
            looked = times.waiting(time.monotonic() - begun)
            if place.claim(snapshot):
                worker = state.worker()
                trouble = self._take(worker)
                if trouble is None:
                    return self._restore(worker)
                place.unclaim()
                pause = min(max(2 * pause, looked), _AGAIN)
            else:
                pause = looked
            state.note(wanted=True)
            needed = () if snapshot.error is not None else rooms(self._parked.held, snapshot)
            self._tell("waits", ahead=place.ahead(), rooms=needed, trouble=trouble)
            self.asker.pause(pause)
        raise _NotDone(why.CANCELLED())

    def _tell(self, step: str, **more: Any) -> None:
        size = self._parked.size
        self.asker.tell(Progress(step=step, size=size, seconds=self.state.seconds("restore", size), **more))

    def _take(self, worker: DriverWorker) -> why.Refusal | None:
        """Have a worker take the room for what comes back; return why, if it is not given."""
        self._tell("takes room")
        room = {held.gpu: checks.placeholder(held.size) for held in self._parked.held}
        try:
            worker.call("take", room, seconds=self.state.timeouts.copy)
        except DriverError as error:
            if error.code == driver.OUT_OF_MEMORY:
                return why.NOT_GIVEN(error.call, error.code)
            raise
        return None

    def _restore(self, worker: DriverWorker) -> float:
        """Bring the process back into the room that a worker holds for it, and that ends with it."""
        state, times = self.state, self.state.timeouts
        try:
            if worker.state(state.pid, seconds=times.state) is not CudaState.CHECKPOINTED:
                return self._set_right()
            self._go_on()
            self._tell("copies back")
            state.move(Phase.RESTORING)
            try:
                took = state.copy(worker, "restore")
            except DriverError as error:
                return self._not_restored(error)
            state.move(Phase.UNLOCKING)
            state.worker().call("unlock", state.pid, seconds=times.copy)
            state.move(Phase.BACK, returns=self._parked.returns + 1)
            return took
        finally:
            if worker.usable:
                with contextlib.suppress(*TROUBLES):
                    worker.call("let_go", seconds=times.copy)

    def _not_restored(self, error: DriverError) -> float:
        """Find out what a failed restore has left: one that found too little room has failed for good."""
        away = self.state.state() in (CudaState.CHECKPOINTED, CudaState.UNKNOWN)
        final = _FINAL if self.state.file is None else _FINAL[:1]  # the second is also that it may not be traced now
        if away and error.call == driver.RESTORE and error.code in final:
            self.state.move(Phase.FAILED)
            raise _NotDone(refusal(error), why.LOST())
        return self._set_right(refusal(error))

    def _set_right(self, *declined: why.Refusal) -> float:
        """Set the process right; it ends here, with these reasons, if it is not back then."""
        self.state.set_right()
        if self._done:
            return 0.0
        phase = self._parked.phase
        raise _NotDone(*declined, *(() if declined and phase is Phase.PARKED else (unsettled(phase),)))


def unsettled(phase: Phase) -> why.Refusal:
    """Return why nothing is done about a process in this phase."""
    return why.LOST() if phase is Phase.FAILED else why.UNANSWERED(phase.value)
