"""What the parker does to processes: it parks them, brings them back and sets them right, one thing at a time to each.

On the way out: checks, the lock, the checks again now that nothing of it can change, and the copy to the host. On the
way back: its turn and room, the room taken, and the copy into it at once. A copy that finds too little room fails for
good, so none is tried on hope: the room was seen to be free, it is claimed, and it is held by a placeholder until the
moment before.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking import checks, driver, facts
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.driver import DriverError
from tfgpu_magic.parking.driver_worker import TROUBLES
from tfgpu_magic.parking.driver_workers import Calls
from tfgpu_magic.parking.gpu_state import Timeouts, refusal
from tfgpu_magic.parking.messages import ParkOutcome, Progress
from tfgpu_magic.parking.parker_room import rooms
from tfgpu_magic.parking.record import ParkedProcess
from tfgpu_magic.parking.states import SETTLED, UNSETTLED, Action, CudaState, Found, Phase, reconcile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.model.report import HeldMemory
    from tfgpu_magic.model.snapshot import Snapshot
    from tfgpu_magic.parking.driver_workers import DriverWorkers, OpenRequest, PoolWorker
    from tfgpu_magic.parking.parker_room import ParkerPlace, Waiting
    from tfgpu_magic.parking.record import Key, ParkingLedger

_POLL = 0.05  # seconds between two looks whether a process's turn has come
_FINAL = (driver.OUT_OF_MEMORY, driver.NO_SUCH_PROCESS)
"""The errors of a restore that has failed for good: the first time, and every later time."""

_ADOPTED: dict[CudaState | Found, Phase] = {
    CudaState.LOCKED: Phase.UNLOCKING,
    CudaState.CHECKPOINTED: Phase.PARKED,
    CudaState.FAILED: Phase.FAILED,
}
"""How far a process has come that an earlier parker had parked; one that died in the restore leaves it locked."""

STOPPED, HANGS, SILENT = "stopped", "hangs", "unanswered"
"""Why a process is not set right for now: it is stopped, a call for it hangs, the driver did not answer."""


class Transfers:
    """What is done to processes, at most one thing to each at a time.

    Args:
        ledger: what is parked.
        workers: who makes the driver's calls.
        waiting: who waits for room.
        timeouts: how long each call may take.
    """

    def __init__(self, ledger: ParkingLedger, workers: DriverWorkers, waiting: Waiting, timeouts: Timeouts) -> None:
        calls = Calls(workers, timeouts)
        self._ledger = ledger
        self._park, self._unpark = ParkerPark(ledger, calls), ParkerUnpark(ledger, calls, waiting)
        self._doing: dict[Key, OpenRequest | None] = {}

    async def do(self, asked: OpenRequest) -> ParkOutcome:
        """Do what is asked, once nothing else is done to the process; its asker is told how that gets on."""
        if asked.request.deed == "check":
            return await self._park.check(asked)
        while not self.idle(asked.key):
            if asked.called_off:
                return ParkOutcome(entry=self._ledger.entry(asked.key), refusals=(why.CANCELLED(),))
            ahead = self._doing[asked.key]
            if ahead is not None and ahead.said is not None and ahead.said != asked.said:
                asked.tell(ahead.said)
            await asked.pause(_POLL)
        with self._alone(asked.key, asked):
            return await (self._park.park(asked) if asked.request.deed == "park" else self._unpark.unpark(asked))

    def idle(self, key: Key) -> bool:
        """Tell whether nothing is being done to a process."""
        return key not in self._doing

    async def settle(self, key: Key) -> None:
        """Set a process right, if nothing is being done to it."""
        if self.idle(key):
            with self._alone(key):
                await self._park.settled(key)

    @contextlib.contextmanager
    def _alone(self, key: Key, asked: OpenRequest | None = None) -> Iterator[None]:
        """Let nothing else be done to a process meanwhile."""
        self._doing[key] = asked
        try:
            yield
        finally:
            del self._doing[key]


class ParkerTransfer:
    """One way of a process's state; sets right what had no known end, here or with an earlier parker.

    Args:
        ledger: what is parked.
        calls: the driver's calls.
    """

    def __init__(self, ledger: ParkingLedger, calls: Calls) -> None:
        self._ledger, self._calls = ledger, calls

    async def settled(self, key: Key) -> ParkedProcess | None:
        """Return what is known of a process after it was set right, as far as that can be done in bounded time."""
        entry = self._ledger.entry(key)
        if entry is None or entry.phase not in UNSETTLED:
            return entry
        if not entry.alive():
            self._ledger.forget(entry)
            return None
        if self._calls.hang(key):
            return self._ledger.note(entry, HANGS)
        if facts.stopped(key[0]):
            return self._ledger.note(entry, STOPPED)
        try:
            async with self._calls.worker() as worker:
                return await self.set_right(worker, entry)
        except TROUBLES:
            return self._ledger.note(self._ledger.entry(key) or entry, SILENT)

    async def settled_in_time(self, asked: OpenRequest) -> ParkedProcess | None:
        """Return what is known of a process as soon as it is set right: a copy that is under way takes its time."""
        times, begun = self._calls.timeouts, time.monotonic()
        while True:
            entry = await self.settled(asked.key)
            if entry is None or entry.phase not in UNSETTLED or entry.trouble == STOPPED or asked.called_off:
                return entry
            if time.monotonic() - begun > times.copying(entry.size):
                return entry
            asked.tell(Progress(step="settles", size=entry.size))
            await asked.pause(times.between)

    async def set_right(
        self, worker: PoolWorker, entry: ParkedProcess, *, never_away: bool = False
    ) -> ParkedProcess | None:
        """Do what `states.reconcile` says; return the process as it is known then.

        Args:
            worker: makes the calls.
            entry: the process.
            never_away: whether it is known that a checkpoint has failed.

        Raises:
            DriverError: the driver declines.
            GivenUp: it hangs.
            Died: the worker has ended.
        """
        key, returned = (entry.pid, entry.began), entry.returns > 0
        phase = Phase.LOCKING if never_away else entry.phase
        action = reconcile(phase, await self._calls.state(worker, key), returned=returned)
        if action is Action.UNLOCK:
            await self._calls.make(worker, key, "unlock", seconds=self._calls.timeouts.unlock)
            action = reconcile(phase, CudaState.RUNNING, returned=returned)
        if action is Action.WAIT:
            return self._ledger.note(entry, SILENT)
        after = SETTLED[action]
        if after is None:
            self._ledger.forget(entry)
            return None
        came_back = after is Phase.BACK and phase is not Phase.LOCKING
        return self._ledger.move(entry, after, returns=entry.returns + came_back)


class ParkerPark(ParkerTransfer):
    """The way out."""

    async def check(self, asked: OpenRequest) -> ParkOutcome:
        """Tell whether a process could be parked, and why not."""
        entry = self._ledger.entry(asked.key)
        if entry is not None and (entry.parked or entry.phase is Phase.FAILED):
            return ParkOutcome(entry=entry, refusals=() if entry.parked else (unsettled(entry),))
        return ParkOutcome(entry=entry, refusals=(await self._judged(asked))[1])

    async def park(self, asked: OpenRequest) -> ParkOutcome:
        """ParkerPark a process; whatever goes wrong, it is not left locked."""
        before = await self.settled_in_time(asked)
        if before is not None and before.phase is Phase.PARKED:
            return ParkOutcome(entry=before)
        if before is not None and (before.phase in UNSETTLED or before.phase is Phase.FAILED):
            return ParkOutcome(entry=before, refusals=(unsettled(before),))
        asked.tell(Progress(step="checks"))
        held, refused = await self._judged(asked)
        if refused:
            return ParkOutcome(entry=before, refusals=refused)
        try:
            async with self._calls.worker() as worker:
                return await self._begin(worker, asked, before, held)
        except TROUBLES as trouble:
            entry = await self.settled(asked.key)
            parked = entry is not None and entry.phase is Phase.PARKED
            return ParkOutcome(entry=entry, refusals=() if parked else (refusal(trouble),))

    async def _judged(
        self, asked: OpenRequest, worker: PoolWorker | None = None
    ) -> tuple[tuple[HeldMemory, ...], tuple[why.Refusal, ...]]:
        """Return what a process holds, and every reason why it is not to be parked."""
        spoken_for = self._ledger.on_its_way_out()
        found = await self._calls.facts(asked.request, asked.key, worker)
        if not isinstance(found, checks.ParkFacts):
            return (), (found,)
        if found.host is not None:  # others are copied there meanwhile
            spoken_for = max(spoken_for, self._ledger.on_its_way_out())
            found = replace(found, host=max(0, found.host - spoken_for))
        return found.known, checks.refusals(found)

    async def _begin(
        self, worker: PoolWorker, asked: OpenRequest, before: ParkedProcess | None, held: tuple[HeldMemory, ...]
    ) -> ParkOutcome:
        """Lock a process that nothing else has locked."""
        times, (pid, start) = self._calls.timeouts, asked.key
        state = await self._calls.state(worker, asked.key)
        if state is not CudaState.RUNNING:
            return ParkOutcome(entry=before, refusals=(_not_running(state),))
        if asked.called_off:
            return ParkOutcome(entry=before, refusals=(why.CANCELLED(),))
        returns = 0 if before is None else before.returns
        entry = ParkedProcess(
            pid=pid, began=start, phase=Phase.LOCKING, since=time.time(), held=held, name=asked.request.name,
            returns=returns,
        )  # fmt: skip
        try:
            self._ledger.begin(entry)
        except MonitorError as error:
            return ParkOutcome(entry=before, refusals=(why.UNRECORDED(str(error)),))
        asked.tell(Progress(step="locks"))
        try:
            await self._calls.make(worker, asked.key, "lock", times.lock, seconds=times.lock + times.more)
        except DriverError as error:
            late = error.code == driver.LOCK_TIMED_OUT
            reasons = (why.STILL_WORKING(times.lock),) if late else _declined(error, entry)
            return ParkOutcome(entry=await self.set_right(worker, entry), refusals=reasons)
        return await self._copy(worker, asked, entry)

    async def _copy(self, worker: PoolWorker, asked: OpenRequest, entry: ParkedProcess) -> ParkOutcome:
        """Check a locked process again, and copy what it holds to the host."""
        held, refused = await self._judged(asked, worker)
        if asked.called_off:
            refused = (why.CANCELLED(),)
        if refused:
            return ParkOutcome(entry=await self.set_right(worker, entry), refusals=refused)
        entry = self._ledger.move(entry, Phase.CHECKPOINTING, held=held)
        seconds = self._ledger.record.rates.seconds_out(entry.size)
        asked.tell(Progress(step="copies out", size=entry.size, seconds=seconds))
        begun = time.monotonic()
        try:
            await self._calls.make(worker, asked.key, "checkpoint", seconds=self._calls.timeouts.copying(entry.size))
        except DriverError as error:
            changed = await self.set_right(worker, entry, never_away=True)
            return ParkOutcome(entry=changed, refusals=_declined(error, entry))
        took = time.monotonic() - begun
        self._ledger.measured(out=entry.size / max(took, 1e-3))
        return ParkOutcome(entry=self._ledger.move(entry, Phase.PARKED), seconds=took)


def _declined(error: DriverError, entry: ParkedProcess) -> tuple[why.Refusal, ...]:
    """Return why a call has failed: a process may have ended in it."""
    declined = why.DECLINED(error.call, error.code)
    return (declined,) if entry.alive() else (declined, why.ENDED())


def _not_running(found: CudaState | Found) -> why.Refusal:
    if found is Found.GONE:
        return why.ENDED()
    if found is Found.NO_CUDA:
        return why.HOLDS_NOTHING()
    if isinstance(found, CudaState):
        return why.ELSEWHERE()
    return why.UNANSWERED("cuCheckpointProcessGetState")


class ParkerUnpark(ParkerTransfer):
    """The way back.

    Args:
        ledger: what is parked.
        calls: the driver's calls.
        waiting: who waits for room.
    """

    def __init__(self, ledger: ParkingLedger, calls: Calls, waiting: Waiting) -> None:
        super().__init__(ledger, calls)
        self._waiting = waiting

    async def unpark(self, asked: OpenRequest) -> ParkOutcome:
        """Bring a process back, as soon as there is room for it."""
        entry = await self.settled_in_time(asked) or await self._adopted(asked)
        if isinstance(entry, why.Refusal):
            return ParkOutcome(refusals=(entry,))
        if entry.phase is Phase.BACK:
            return ParkOutcome(entry=entry)
        if entry.phase in UNSETTLED and asked.called_off:
            return ParkOutcome(entry=entry, refusals=(why.CANCELLED(),))
        if entry.phase is not Phase.PARKED:
            return ParkOutcome(entry=entry, refusals=(unsettled(entry),))
        if not entry.held:  # what it needs is not known, so nothing could be taken for it
            return ParkOutcome(entry=entry, refusals=(why.NOT_PARKED(),))
        place = self._waiting.enter(entry)
        try:
            return await self._in_turn(asked, entry, place)
        except TROUBLES as trouble:
            changed = await self.settled(asked.key)
            back = changed is not None and changed.phase is Phase.BACK
            return ParkOutcome(entry=changed, refusals=() if back else (refusal(trouble),))
        finally:
            self._ledger.want(asked.key, wanted=False)
            self._waiting.leave(place)

    async def _adopted(self, asked: OpenRequest) -> ParkedProcess | why.Refusal:
        """Return a process that an earlier parker has parked whose record is lost, set right, or why there is none."""
        (pid, start), request = asked.key, asked.request
        if not request.held or not facts.owned(pid):
            return why.NOT_PARKED()
        try:
            async with self._calls.worker() as worker:
                state = await self._calls.state(worker, asked.key)
            if state is Found.UNKNOWN:
                return why.STOPPED() if facts.stopped(pid) else why.UNANSWERED("cuCheckpointProcessGetState")
            if state in _ADOPTED:
                phase, name, now = _ADOPTED[state], request.name, time.time()
                self._ledger.begin(
                    ParkedProcess(pid=pid, began=start, phase=phase, since=now, held=request.held, name=name)
                )
        except TROUBLES as trouble:  # a restore may still be under way
            return refusal(trouble)
        except MonitorError as error:
            return why.UNRECORDED(str(error))
        return await self.settled_in_time(asked) or why.NOT_PARKED()

    async def _in_turn(self, asked: OpenRequest, entry: ParkedProcess, place: ParkerPlace) -> ParkOutcome:
        """Wait until it is the process's turn and there is room, and bring it back, unless something else has."""
        async with self._calls.worker() as worker:
            state = await self._calls.state(worker, asked.key)
            if state in (CudaState.RUNNING, CudaState.LOCKED):
                changed = await self.set_right(worker, entry)
                return ParkOutcome(entry=changed, refusals=unless_back(changed, state))
        times, since = self._calls.timeouts, time.monotonic()
        pause = times.between
        while not asked.called_off:
            if not entry.alive():
                return ParkOutcome(refusals=(why.ENDED(),))
            if facts.stopped(entry.pid):
                return ParkOutcome(entry=entry, refusals=(why.STOPPED(),))
            snapshot = await self._calls.look(since)
            trouble: why.Refusal | None = None if snapshot.error is None else why.NO_DRIVER(snapshot.error)
            if self._waiting.claim(place, snapshot):
                done = await self._bring_back(asked, entry)
                if isinstance(done, ParkOutcome):
                    return done
                self._waiting.unclaim(place)
                trouble, pause = done, min(2 * pause, times.again)
            else:
                pause = times.between
            self._ledger.want(asked.key, wanted=True)
            asked.tell(self._progress(entry, place, snapshot, trouble))
            await asked.pause(pause)
            since = time.monotonic() - times.between / 2
        return ParkOutcome(entry=entry, refusals=(why.CANCELLED(),))

    def _progress(
        self, entry: ParkedProcess, place: ParkerPlace, snapshot: Snapshot, trouble: why.Refusal | None
    ) -> Progress:
        """Return for whom and for how long a process waits."""
        rates = self._ledger.record.rates
        return Progress(
            step="waits",
            size=entry.size,
            seconds=rates.seconds_back(entry.size),
            ahead=tuple(one.pid for one in self._waiting.ahead(place)),
            rooms=() if snapshot.error is not None else rooms(entry, snapshot),
            trouble=trouble,
        )

    async def _bring_back(self, asked: OpenRequest, entry: ParkedProcess) -> ParkOutcome | why.Refusal:
        """Have the room taken, and bring a process back into it; return why if the room is not given."""
        times = self._calls.timeouts
        seconds = self._ledger.record.rates.seconds_back(entry.size)
        asked.tell(Progress(step="takes room", size=entry.size, seconds=seconds))
        async with self._calls.worker() as worker:
            room = {held.gpu: checks.placeholder(held.size) for held in entry.held}
            try:
                await worker.call("take", room, seconds=times.take)
            except DriverError as error:
                if error.code == driver.OUT_OF_MEMORY:
                    return why.NOT_GIVEN(error.call, error.code)
                raise
            try:
                return await self._restore(worker, asked, entry)
            finally:
                if worker.usable:
                    with contextlib.suppress(*TROUBLES):
                        await worker.call("let_go", seconds=times.unlock)

    async def _restore(self, worker: PoolWorker, asked: OpenRequest, entry: ParkedProcess) -> ParkOutcome:
        """Bring a process back into the room that the worker holds for it."""
        times, key = self._calls.timeouts, asked.key
        state = await self._calls.state(worker, key)
        if state is not CudaState.CHECKPOINTED:
            changed = await self.set_right(worker, entry)
            return ParkOutcome(entry=changed, refusals=unless_back(changed, state))
        if asked.called_off:
            return ParkOutcome(entry=entry, refusals=(why.CANCELLED(),))
        seconds = self._ledger.record.rates.seconds_back(entry.size)
        asked.tell(Progress(step="copies back", size=entry.size, seconds=seconds))
        entry = self._ledger.move(entry, Phase.RESTORING)
        begun = time.monotonic()
        try:
            await self._calls.make(worker, key, "restore", seconds=times.copying(entry.size))
        except DriverError as error:
            return await self._not_restored(worker, entry, error)
        took = time.monotonic() - begun
        entry = self._ledger.move(entry, Phase.UNLOCKING)
        await self._calls.make(worker, key, "unlock", seconds=times.unlock)
        self._ledger.measured(back=entry.size / max(took, 1e-3))
        return ParkOutcome(entry=self._ledger.move(entry, Phase.BACK, returns=entry.returns + 1), seconds=took)

    async def _not_restored(self, worker: PoolWorker, entry: ParkedProcess, error: DriverError) -> ParkOutcome:
        """Find out what a failed restore has left: one that found too little room has failed for good."""
        declined = why.DECLINED(error.call, error.code)
        if error.call != driver.RESTORE:  # it was not begun
            return ParkOutcome(entry=self._ledger.move(entry, Phase.PARKED), refusals=(declined,))
        found = await self._calls.state(worker, (entry.pid, entry.began))
        away = found is CudaState.CHECKPOINTED or (found is Found.UNKNOWN and not facts.stopped(entry.pid))
        if away and error.code in _FINAL:
            return ParkOutcome(entry=self._ledger.move(entry, Phase.FAILED), refusals=(declined, why.LOST()))
        changed = await self.set_right(worker, entry)
        if changed is not None and changed.phase is Phase.PARKED:
            return ParkOutcome(entry=changed, refusals=(declined,))
        refused = unless_back(changed, found)
        return ParkOutcome(entry=changed, refusals=refused and (declined, *refused))


def unsettled(entry: ParkedProcess) -> why.Refusal:
    """Return why nothing is done about a process in this phase."""
    if entry.phase is Phase.FAILED:
        return why.LOST()
    return why.STOPPED() if entry.trouble == STOPPED else why.UNANSWERED(entry.phase.value)


def unless_back(entry: ParkedProcess | None, found: CudaState | Found) -> tuple[why.Refusal, ...]:
    """Return why a process did not come back; nothing where it is there."""
    if entry is None:
        return (why.ENDED(),) if found is Found.GONE else ()
    if entry.phase is Phase.BACK:
        return ()
    return (why.UNANSWERED("restore"),) if entry.phase is Phase.PARKED else (unsettled(entry),)
