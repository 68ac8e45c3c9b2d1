"""What is done to this process: it is parked, and brought back.

On the way out: checks, the lock, the checks again now that nothing of it can change, and the copy to the host. On the
way back: its turn and room, the room taken, and the copy into it at once. A copy that finds too little room fails for
good, so none is tried on hope: the room was seen to be free, it is claimed, and it is held by a placeholder until the
moment before.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.parking import checks, driver, facts, host_memory_claims
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.driver import DriverError
from tfgpu_magic.parking.driver_worker import TROUBLES, Died
from tfgpu_magic.parking.gpu_state import NOBODY, Asker, GpuState, refusal
from tfgpu_magic.parking.messages import ParkOutcome, Progress
from tfgpu_magic.parking.room import Place, rooms
from tfgpu_magic.parking.states import UNSETTLED, CudaState, Found, Phase
from tfgpu_magic.probe import within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.leases.lease_file import LeaseTable
    from tfgpu_magic.model.report import HeldMemory
    from tfgpu_magic.parking.driver_worker import DriverWorker
    from tfgpu_magic.parking.parked import ParkedProcess

OUT_LOCK = "lock-park-out"
"""The file whose lock one of this user's processes has while it is parked: no two count on the same host memory."""

TRIES = 3
"""How often a return is begun again when a worker has died over it."""
_FINAL = (driver.OUT_OF_MEMORY, driver.NO_SUCH_PROCESS)
"""The errors of a restore that has failed for good: the first time, and every later time."""


class Park:
    """The way out.

    Args:
        state: the process's.
        inside: what the process says of itself.
        allow_open_module: whether the administrator allows the open kernel module.
        unasked: whether nobody has asked for it, so that what would be said is a reason against it.
        to_disk: whether it goes to disk, and not to host memory.
        asker: who has asked for it.
    """

    _yields = True  # to another of the user's processes that is on its way out

    def __init__(
        self,
        state: GpuState,
        inside: Inside,
        *,
        allow_open_module: bool = False,
        unasked: bool = False,
        to_disk: bool = False,
        asker: Asker = NOBODY,
    ) -> None:
        self._state, self._inside, self._asker = state, inside, asker
        self._allow_open_module, self._unasked, self._to_disk = allow_open_module, unasked, to_disk
        self._notes: tuple[why.Refusal, ...] = ()

    def check(self) -> ParkOutcome:
        """Tell whether the process could be parked, and why not."""
        known = self._state.known
        if known is not None and (known.parked or known.phase is Phase.FAILED):
            return ParkOutcome(entry=known, refusals=() if known.parked else (unsettled(known),))
        with self._state.alone(self._asker):
            try:
                return ParkOutcome(entry=known, refusals=self._judged()[1], notes=self._notes)
            except TROUBLES as trouble:
                return ParkOutcome(entry=known, refusals=(refusal(trouble),))

    def park(self) -> ParkOutcome:
        """Park the process; whatever goes wrong, it is not left locked."""
        with self._state.alone(self._asker) as alone:
            return self._park() if alone else self._outcome(why.CANCELLED())

    def _park(self) -> ParkOutcome:
        before = self._state.settled(self._asker)
        if before is not None and before.phase is not Phase.BACK:
            return self._outcome() if before.phase is Phase.PARKED else self._outcome(unsettled(before))
        self._asker.tell(Progress(step="checks"))
        try:
            held, refused = self._judged()
            return self._outcome(*refused) if refused else self._begin(held)
        except TROUBLES as trouble:
            entry = self._state.settled(self._asker) if self._to_disk else self._state.settle()
            parked = entry is not None and entry.phase is Phase.PARKED
            return self._outcome() if parked else self._outcome(refusal(trouble))

    def _outcome(self, *refused: why.Refusal, seconds: float = 0.0) -> ParkOutcome:
        notes = () if refused else self._notes
        return ParkOutcome(entry=self._state.known, refusals=refused, seconds=seconds, notes=notes)

    def _judged(self) -> tuple[tuple[HeldMemory, ...], tuple[why.Refusal, ...]]:
        """Return what the process holds, and every reason why it is not to be parked; what is raised is a trouble."""
        allowed = {"allow_open_module": self._allow_open_module, "to_disk": self._to_disk}
        read = partial(facts.read, self._state.pid, self._state.look(), self._inside, **allowed)
        # What is read of a process that a driver holds may take until that ends.
        found = within(self._state.timeouts.look, read)
        if found is None:
            return (), (why.UNANSWERED("/proc"),)
        self._notes = checks.shortages(found)
        return found.known, checks.refusals(found) or (self._notes if self._unasked else ())

    def _begin(self, held: tuple[HeldMemory, ...]) -> ParkOutcome:
        """Lock a process that nothing else has locked."""
        found = self._state.state()
        if found is not CudaState.RUNNING:
            return self._outcome(_not_running(found))
        times = self._state.timeouts
        claimed = contextlib.nullcontext() if self._to_disk else host_memory_claims.claimed()
        with _only_one(self._asker, times.lock if self._yields else 0.0) as only, claimed:
            if not self._asker.wanted():
                return self._outcome(why.CANCELLED())
            if not only and self._yields:
                return self._outcome(why.ANOTHER())
            self._state.begin(held)
            self._asker.tell(Progress(step="locks"))
            try:
                self._state.make("lock", times.lock, seconds=times.lock + times.more)
            except DriverError as error:
                self._state.set_right()
                late = error.code == driver.LOCK_TIMED_OUT
                return self._outcome(why.STILL_WORKING(times.lock) if late else refusal(error))
            return self._copy()

    def _copy(self) -> ParkOutcome:
        """Check a locked process again, and copy what it holds to the host."""
        held, refused = self._judged()
        if not self._asker.wanted():
            refused = (why.CANCELLED(),)
        refused = refused or self._make_file()
        if refused:
            self._state.set_right()
            return self._outcome(*refused)
        size = self._state.move(Phase.CHECKPOINTING, held=held, disk=self._to_disk).size
        if self._to_disk:
            self._asker.tell(Progress(step="copies to disk", size=size))
        else:
            self._asker.tell(Progress(step="copies out", size=size, seconds=self._state.rates.seconds_out(size)))
        try:
            took = self._state.copy(self._state.worker(), "checkpoint", [one.gpu for one in held])
        except DriverError as error:
            self._taken_back()
            return self._outcome(refusal(error))
        self._state.move(Phase.PARKED)
        return self._outcome(seconds=took)

    def _make_file(self) -> tuple[why.Refusal, ...]:
        """Make the file for what goes to disk; return why that cannot be done."""
        if not self._to_disk:
            return ()
        place = facts.disk_place()
        if place is None:
            return (why.NO_DISK(),)
        try:
            self._state.file = place.make()
        except OSError as error:
            return (why.DISK_UNUSABLE(place.directory, error.strerror or str(error)),)
        return ()

    def _taken_back(self) -> None:
        """Set the process right after a checkpoint that failed, once the driver has taken back what it had begun."""
        end = time.monotonic() + self._state.timeouts.state
        while (known := self._state.set_right(never_away=True)) is not None and known.phase in UNSETTLED:
            if time.monotonic() > end:
                return
            self._asker.pause(self._state.timeouts.between / 5)


class LastPark(Park):
    """The way out of a process that ends: nothing speaks against it, since whatever comes of it, the process ends.

    Args:
        state: the process's.
    """

    _yields = False

    def __init__(self, state: GpuState) -> None:
        super().__init__(state, Inside())

    def _judged(self) -> tuple[tuple[HeldMemory, ...], tuple[why.Refusal, ...]]:
        return super()._judged()[0], ()


@contextlib.contextmanager
def _only_one(asker: Asker, seconds: float) -> Iterator[bool]:
    """Be the only process of this user's on its way out; give False where another one is for longer than that.

    Where there is no board, no other process is known.
    """
    try:
        with BoardDirectory() as place:
            file = place.open(OUT_LOCK, os.O_RDWR | os.O_CREAT)
    except (MonitorError, OSError):
        yield True
        return
    try:
        end = time.monotonic() + seconds
        while not (locked := _locked(file)) and time.monotonic() < end and asker.wanted():
            asker.pause(0.1)
        yield locked
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # where files cannot be locked, no other process is known either
        return not isinstance(error, BlockingIOError)
    return True


def _not_running(found: CudaState | Found) -> why.Refusal:
    if found is Found.NO_CUDA:
        return why.HOLDS_NOTHING()
    if isinstance(found, CudaState):
        return why.ELSEWHERE()
    return why.UNANSWERED("cuCheckpointProcessGetState")


class Unpark:
    """The way back.

    Args:
        state: the process's.
        table: where it is written who waits for room.
        asker: who has asked for it.
    """

    def __init__(self, state: GpuState, table: LeaseTable, asker: Asker = NOBODY) -> None:
        self._state, self._table, self._asker = state, table, asker

    def unpark(self) -> ParkOutcome:
        """Bring the process back, as soon as there is room for it."""
        with self._state.alone(self._asker) as alone:
            if not alone:
                return ParkOutcome(entry=self._state.known, refusals=(why.CANCELLED(),))
            entry = self._state.settled(self._asker)
            if entry is None or entry.phase is Phase.BACK:
                return ParkOutcome(entry=entry)
            if entry.phase is not Phase.PARKED:
                off = entry.phase in UNSETTLED and not self._asker.wanted()
                return ParkOutcome(entry=entry, refusals=(why.CANCELLED() if off else unsettled(entry),))
            place = Place(self._table, self._state.pid, entry.held)
            try:
                return self._tried(entry, place, TRIES)
            finally:
                self._state.note(wanted=False)
                self._state.when_settled(place.leave)

    def _tried(self, entry: ParkedProcess, place: Place, times: int) -> ParkOutcome:
        """Bring the process back; if a worker has died over that and nothing has changed, have another one do it."""
        try:
            return self._in_turn(entry, place)
        except TROUBLES as trouble:
            changed = self._state.settled(self._asker) if entry.disk else self._state.settle()
            if changed is not None and changed.phase is Phase.PARKED and isinstance(trouble, Died) and times > 1:
                return self._tried(changed, place, times - 1)
            back = changed is not None and changed.phase is Phase.BACK
            return ParkOutcome(entry=changed, refusals=() if back else (refusal(trouble),))

    def _in_turn(self, entry: ParkedProcess, place: Place) -> ParkOutcome:
        """Wait until it is the process's turn and there is room, and bring it back, unless something else has."""
        found = self._state.state()
        if found in (CudaState.RUNNING, CudaState.LOCKED):
            return self._set_right()
        times, begun = self._state.timeouts, time.monotonic()
        pause = times.between
        while self._asker.wanted():
            snapshot = self._state.look()
            trouble: why.Refusal | None = None if snapshot.error is None else why.NO_DRIVER(snapshot.error)
            looked = times.waiting(time.monotonic() - begun)
            if place.claim(snapshot):
                done = self._bring_back(entry)
                if isinstance(done, ParkOutcome):
                    return done
                place.unclaim()
                trouble, pause = done, min(max(2 * pause, looked), times.again)
            else:
                pause = looked
            self._state.note(wanted=True)
            needed = () if snapshot.error is not None else rooms(entry.held, snapshot)
            self._tell("waits", entry, ahead=place.ahead(), rooms=needed, trouble=trouble)
            self._asker.pause(pause)
        return ParkOutcome(entry=self._state.known, refusals=(why.CANCELLED(),))

    def _tell(self, step: str, entry: ParkedProcess, **more: Any) -> None:
        seconds = self._state.rates.seconds_back(entry.size)
        self._asker.tell(Progress(step=step, size=entry.size, seconds=seconds, **more))

    def _bring_back(self, entry: ParkedProcess) -> ParkOutcome | why.Refusal:
        """Have the room taken, and bring the process back into it; return why if the room is not given."""
        times, worker = self._state.timeouts, self._state.worker()
        self._tell("takes room", entry)
        room = {held.gpu: checks.placeholder(held.size) for held in entry.held}
        try:
            worker.call("take", room, seconds=times.take)
        except DriverError as error:
            if error.code == driver.OUT_OF_MEMORY:
                return why.NOT_GIVEN(error.call, error.code)
            raise
        try:
            return self._restore(worker, entry)
        finally:
            if worker.usable:
                with contextlib.suppress(*TROUBLES):
                    worker.call("let_go", seconds=times.unlock)

    def _restore(self, worker: DriverWorker, entry: ParkedProcess) -> ParkOutcome:
        """Bring the process back into the room that a worker holds for it, and that ends with it."""
        times = self._state.timeouts
        found = worker.state(self._state.pid, seconds=times.state)
        if found is not CudaState.CHECKPOINTED:
            return self._set_right()
        if not self._asker.wanted():
            return ParkOutcome(entry=self._state.known, refusals=(why.CANCELLED(),))
        self._tell("copies back", entry)
        self._state.move(Phase.RESTORING)
        try:
            took = self._state.copy(worker, "restore")
        except DriverError as error:
            return self._not_restored(error)
        self._state.move(Phase.UNLOCKING)
        self._state.make("unlock", seconds=times.unlock)
        return ParkOutcome(entry=self._state.move(Phase.BACK, returns=entry.returns + 1), seconds=took)

    def _not_restored(self, error: DriverError) -> ParkOutcome:
        """Find out what a failed restore has left: one that found too little room has failed for good."""
        declined = refusal(error)
        found = self._state.state()
        final = _FINAL if self._state.file is None else _FINAL[:1]  # the second is also that it may not be traced now
        if found in (CudaState.CHECKPOINTED, Found.UNKNOWN) and error.call == driver.RESTORE and error.code in final:
            return ParkOutcome(entry=self._state.move(Phase.FAILED), refusals=(declined, why.LOST()))
        return self._set_right(declined)

    def _set_right(self, *declined: why.Refusal) -> ParkOutcome:
        """Set the process right, and return why it is not back then, if it is not."""
        changed = self._state.set_right()
        if changed is None or changed.phase is Phase.BACK:
            return ParkOutcome(entry=changed)
        refused = declined if changed.phase is Phase.PARKED else (*declined, unsettled(changed))
        return ParkOutcome(entry=changed, refusals=refused or (why.UNANSWERED("restore"),))


def unsettled(entry: ParkedProcess) -> why.Refusal:
    """Return why nothing is done about a process in this phase."""
    if entry.phase is Phase.FAILED:
        return why.LOST()
    return why.UNANSWERED(entry.phase.value)
