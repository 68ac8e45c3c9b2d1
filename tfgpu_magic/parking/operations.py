"""Parks processes, brings them back, and sets right those that something has died over: one step at a time.

Each step is written down before its call, each call is made by a worker that can be given up, and no wait is without
its end, except that for room, which whoever waits can call off.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.snapshot import Snapshot
from tfgpu_magic.parking import checks, driver, facts
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.driver import DriverError
from tfgpu_magic.parking.messages import Outcome, Progress
from tfgpu_magic.parking.record import Entry
from tfgpu_magic.parking.room import rooms
from tfgpu_magic.parking.states import UNSETTLED, Action, Found, Phase, State, reconcile, settled
from tfgpu_magic.parking.workers import Died, GivenUp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tfgpu_magic.parking.ledger import Key, Ledger
    from tfgpu_magic.parking.messages import Request
    from tfgpu_magic.parking.room import Place, Waiting
    from tfgpu_magic.parking.workers import Worker, Workers

TROUBLES = (DriverError, GivenUp, Died)
"""What a call to the driver may end in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds that each call may take.

    Attributes:
        look: for the figures of all GPUs.
        state: for a state; it is not answered while a process is copied.
        lock: for what a process has submitted to the GPU.
        more: until the worker is given up that the driver should have answered by then.
        unlock: for that.
        take: for the placeholder.
        copy: for a copy of nothing.
        slowest: bytes a second that a copy has at least.
        between: between two looks while somebody waits for room.
    """

    look: float = 15.0
    state: float = 5.0
    lock: float = 10.0
    more: float = 5.0
    unlock: float = 10.0
    take: float = 30.0
    copy: float = 30.0
    slowest: float = 1e8
    between: float = 0.5

    def copying(self, size: int) -> float:
        """Return the seconds for a copy of so many bytes."""
        return self.copy + size / self.slowest


class Asked:
    """A request that is being worked on.

    Args:
        request: what is asked for.
        key: the process.
        tell: takes each progress.
    """

    def __init__(self, request: Request, key: Key, tell: Callable[[Progress], None] = lambda _: None) -> None:
        self.request, self.key, self.tell = request, key, tell
        self._off = asyncio.Event()

    @property
    def called_off(self) -> bool:
        """Whether nobody wants it any more."""
        return self._off.is_set()

    def call_off(self) -> None:
        """Have it end as soon as nothing is under way."""
        self._off.set()

    async def pause(self, seconds: float) -> None:
        """Wait, unless it is called off meanwhile."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._off.wait(), seconds)


class Operations:
    """What is done to processes, at most one thing to each at a time.

    Args:
        ledger: what is parked.
        workers: who makes the calls.
        waiting: who waits for room.
        timeouts: how long each call may take.
    """

    def __init__(self, ledger: Ledger, workers: Workers, waiting: Waiting, timeouts: Timeouts) -> None:
        self._ledger, self._workers, self._waiting, self._timeouts = ledger, workers, waiting, timeouts
        self._turns: dict[Key, _Turn] = {}
        self._hanging: dict[Key, Worker] = {}
        self._looking = asyncio.Lock()
        self._seen: tuple[float, Snapshot] = (0.0, Snapshot(time=0.0))

    def idle(self, key: Key) -> bool:
        """Tell whether nothing is being done to a process."""
        return key not in self._turns

    async def check(self, asked: Asked) -> Outcome:
        """Tell whether a process could be parked, and why not."""
        entry = self._ledger.entry(asked.key)
        if entry is not None and entry.parked:
            return Outcome(entry=entry)
        found = await self._facts(asked)
        return Outcome(entry=entry, refusals=found if isinstance(found, tuple) else checks.refusals(found))

    # --- parking ---

    async def park(self, asked: Asked) -> Outcome:
        """Park a process."""
        async with self._alone(asked.key):
            entry = await self._settled(asked.key)
            if entry is not None and entry.phase is Phase.PARKED:
                return Outcome(entry=entry)
            if entry is not None and (entry.phase in UNSETTLED or entry.phase is Phase.FAILED):
                return Outcome(entry=entry, refusals=(_unsettled(entry),))
            asked.tell(Progress(step="checks"))
            found = await self._facts(asked)
            refused = found if isinstance(found, tuple) else checks.refusals(found)
            if refused or isinstance(found, tuple):
                return Outcome(entry=entry, refusals=refused)
            return await self._lock_and_go(asked, entry, found)

    async def _lock_and_go(self, asked: Asked, before: Entry | None, found: checks.Facts) -> Outcome:
        pid, start = asked.key
        returns = before.returns if before is not None else 0
        first = Entry(
            pid=pid, began=start, phase=Phase.LOCKING, since=time.time(), held=found.known,
            name=asked.request.name, returns=returns,
        )  # fmt: skip
        try:
            async with self._workers.one() as worker:
                state = await self._state(worker, asked.key)
                if state is not State.RUNNING:
                    return Outcome(entry=before, refusals=(_not_running(state, self._timeouts.state),))
                try:
                    entry = self._ledger.begin(first)
                except MonitorError as error:
                    return Outcome(entry=before, refusals=(why.Unrecorded(str(error)),))
                return await self._away(worker, asked, entry)
        except TROUBLES as trouble:
            return Outcome(entry=await self._settled(asked.key), refusals=(_refusal(trouble),))

    async def _away(self, worker: Worker, asked: Asked, entry: Entry) -> Outcome:
        """Lock a process, look again now that nothing of it can change, and copy its memory out."""
        times, key = self._timeouts, asked.key
        asked.tell(Progress(step="locks"))
        try:
            await self._call(worker, key, "lock", key[0], times.lock, seconds=times.lock + times.more)
        except DriverError as error:
            entry = await self._set_right(worker, entry) or entry
            late = error.code == driver.LOCK_TIMED_OUT
            refusal = why.StillWorking(times.lock) if late else why.Declined(error.call, error.code)
            return Outcome(entry=self._ledger.entry(key), refusals=(refusal,))
        found = await self._facts(asked, worker)
        refused = found if isinstance(found, tuple) else checks.refusals(found)
        if refused or isinstance(found, tuple):
            await self._set_right(worker, entry)
            return Outcome(entry=self._ledger.entry(key), refusals=refused)
        entry = self._ledger.move(entry, Phase.CHECKPOINTING, held=found.known)
        asked.tell(
            Progress(step="copies out", size=entry.size, seconds=self._ledger.record.rates.seconds_out(entry.size))
        )
        begun = time.monotonic()
        try:
            await self._call(worker, key, "checkpoint", key[0], seconds=times.copying(entry.size))
        except DriverError as error:
            await self._set_right(worker, entry, never_away=True)
            return Outcome(entry=self._ledger.entry(key), refusals=(why.Declined(error.call, error.code),))
        took = time.monotonic() - begun
        self._ledger.measured(out=entry.size / max(took, 1e-3))
        return Outcome(entry=self._ledger.move(entry, Phase.PARKED), seconds=took)

    # --- coming back ---

    async def unpark(self, asked: Asked) -> Outcome:
        """Bring a process back, as soon as there is room for it."""
        async with self._alone(asked.key):
            entry = await self._settled_in_time(asked) or await self._adopted(asked)
            if entry is None:
                return Outcome(refusals=(why.NotParked(),))
            if entry.phase is Phase.BACK:
                return Outcome(entry=entry)
            if entry.phase is not Phase.PARKED:
                return Outcome(entry=entry, refusals=(_unsettled(entry),))
            place = self._waiting.enter(entry)
            try:
                return await self._return_in_turn(asked, entry, place)
            except TROUBLES as trouble:
                entry = await self._settled(asked.key)
                back = entry is not None and entry.phase is Phase.BACK
                return Outcome(entry=entry, refusals=() if back else (_refusal(trouble),))
            finally:
                self._waiting.leave(place)

    async def _settled_in_time(self, asked: Asked) -> Entry | None:
        """Return what is known of a process as soon as it is set right: a copy that is under way takes its time."""
        begun = time.monotonic()
        while True:
            entry = await self._settled(asked.key)
            if entry is None or entry.phase not in UNSETTLED or entry.trouble == "stopped" or asked.called_off:
                return entry
            if time.monotonic() - begun > self._timeouts.copying(entry.size):
                return entry
            asked.tell(Progress(step="settles", size=entry.size))
            await asked.pause(self._timeouts.between)

    async def _return_in_turn(self, asked: Asked, entry: Entry, place: Place) -> Outcome:
        since = time.monotonic()
        while not asked.called_off:
            if not entry.alive():
                return Outcome(refusals=(why.Ended(),))
            if facts.stopped(entry.pid):
                return Outcome(entry=entry, refusals=(why.Stopped(),))
            snapshot = await self._look(since)
            if self._waiting.claim(place, snapshot):
                done = await self._bring_back(asked, entry)
                if done is not None:
                    return done
                self._waiting.unclaim(place)
            asked.tell(self._wait(entry, place, snapshot))
            await asked.pause(self._timeouts.between)
            since = time.monotonic() - self._timeouts.between / 2
        return Outcome(entry=entry, refusals=(why.Cancelled(),))

    def _wait(self, entry: Entry, place: Place, snapshot: Snapshot) -> Progress:
        """Return for whom and for how long a process waits."""
        rates = self._ledger.record.rates
        return Progress(
            step="waits",
            size=entry.size,
            seconds=rates.seconds_back(entry.size),
            ahead=tuple((one.pid, rates.seconds_back(one.size)) for one in self._waiting.ahead(place)),
            rooms=rooms(entry, snapshot),
        )

    async def _bring_back(self, asked: Asked, entry: Entry) -> Outcome | None:
        """Take the room, and bring a process back into it; return None if the room is not there."""
        times, key, pid = self._timeouts, asked.key, entry.pid
        seconds = self._ledger.record.rates.seconds_back(entry.size)
        asked.tell(Progress(step="takes room", size=entry.size, seconds=seconds))
        async with self._workers.one() as worker:
            room = {held.gpu: checks.placeholder(held.size) for held in entry.held}
            try:
                await worker.call("take", room, seconds=times.take)
            except DriverError as error:
                if error.code == driver.OUT_OF_MEMORY:
                    return None
                raise
            try:
                state = await self._state(worker, key)
                if state is not State.CHECKPOINTED:
                    changed = await self._set_right(worker, entry)
                    return Outcome(entry=changed, refusals=_unless_back(changed, state))
                if asked.called_off:
                    return Outcome(entry=entry, refusals=(why.Cancelled(),))
                asked.tell(Progress(step="copies back", size=entry.size, seconds=seconds))
                entry = self._ledger.move(entry, Phase.RESTORING)
                begun = time.monotonic()
                try:
                    await self._call(worker, key, "restore", pid, seconds=times.copying(entry.size))
                except DriverError as error:
                    return await self._not_restored(worker, entry, error)
                took = time.monotonic() - begun
                entry = self._ledger.move(entry, Phase.UNLOCKING)
                await self._call(worker, key, "unlock", pid, seconds=times.unlock)
                self._ledger.measured(back=entry.size / max(took, 1e-3))
                entry = self._ledger.move(entry, Phase.BACK, returns=entry.returns + 1)
                return Outcome(entry=entry, seconds=took)
            finally:
                if worker.usable:
                    with contextlib.suppress(*TROUBLES):
                        await worker.call("let_go", seconds=times.unlock)

    async def _not_restored(self, worker: Worker, entry: Entry, error: DriverError) -> Outcome:
        """Find out what a failed restore has left: one that failed while the process was away has failed for good."""
        found = await self._state(worker, (entry.pid, entry.began))
        if found is State.CHECKPOINTED or (found is Found.UNKNOWN and not facts.stopped(entry.pid)):
            return Outcome(entry=self._ledger.move(entry, Phase.FAILED), refusals=(why.Lost(),))
        changed = await self._set_right(worker, entry)
        refused = _unless_back(changed, found)
        return Outcome(entry=changed, refusals=refused and (why.Declined(error.call, error.code), *refused))

    async def _adopted(self, asked: Asked) -> Entry | None:
        """Return a process that an earlier helper has parked whose record is lost; None if it is not parked."""
        (pid, start), held = asked.key, asked.request.held
        if not held or facts.stopped(pid) or not facts.owned(pid):
            return None
        with contextlib.suppress(*TROUBLES, MonitorError):
            async with self._workers.one() as worker:
                if await self._state(worker, asked.key) is State.CHECKPOINTED:
                    return self._ledger.begin(
                        Entry(pid=pid, began=start, phase=Phase.PARKED, since=time.time(), held=held,
                              name=asked.request.name)
                    )  # fmt: skip
        return None

    # --- setting right ---

    async def settle(self, key: Key) -> None:
        """Set a process right, if nothing is being done to it."""
        if self.idle(key):
            async with self._alone(key):
                await self._settled(key)

    async def _settled(self, key: Key) -> Entry | None:
        """Return what is known of a process after it was set right, as far as that can be done in bounded time."""
        entry = self._ledger.entry(key)
        if entry is None or entry.phase not in UNSETTLED:
            return entry
        if not entry.alive():
            self._ledger.forget(entry)
            return None
        hanging = self._hanging.get(key)
        if hanging is not None and not hanging.ended:
            return self._ledger.note(entry, "hangs")
        if facts.stopped(key[0]):
            return self._ledger.note(entry, "stopped")
        try:
            async with self._workers.one() as worker:
                return await self._set_right(worker, entry)
        except TROUBLES:
            return self._ledger.note(self._ledger.entry(key) or entry, "unanswered")

    async def _set_right(self, worker: Worker, entry: Entry, *, never_away: bool = False) -> Entry | None:
        """Do what `states.reconcile` says; return the process as it is known then.

        Args:
            worker: makes the calls.
            entry: the process.
            never_away: whether it is known that a checkpoint has failed.
        """
        key = (entry.pid, entry.began)
        phase = Phase.LOCKING if never_away else entry.phase
        found = await self._state(worker, key)
        action = reconcile(phase, found, returned=entry.returns > 0)
        if action is Action.UNLOCK:
            await self._call(worker, key, "unlock", entry.pid, seconds=self._timeouts.unlock)
            action = reconcile(phase, State.RUNNING, returned=entry.returns > 0)
        if action is Action.WAIT:
            return self._ledger.note(entry, "unanswered")
        after = settled(action)
        if after is None:
            self._ledger.forget(entry)
            return None
        came_back = after is Phase.BACK and phase is not Phase.LOCKING
        return self._ledger.move(entry, after, returns=entry.returns + came_back)

    # --- the calls ---

    async def _state(self, worker: Worker, key: Key) -> State | Found:
        """Ask for a process's state; one that has ended or is stopped is not asked for."""
        if facts.began(key[0]) != key[1]:
            return Found.GONE
        if facts.stopped(key[0]):
            return Found.UNKNOWN
        try:
            found = await worker.state(key[0], seconds=self._timeouts.state)
        except (GivenUp, Died):
            self._remember(key, worker)
            raise
        # The driver's number for that is also one of an error of the system.
        return Found.UNKNOWN if found is Found.GONE and facts.began(key[0]) == key[1] else found

    async def _call(self, worker: Worker, key: Key, call: str, *arguments: object, seconds: float) -> None:
        """Make a call for a process; remember a worker that may still be in it."""
        try:
            await worker.call(call, *arguments, seconds=seconds)
        except (GivenUp, Died):
            self._remember(key, worker)
            raise

    def _remember(self, key: Key, worker: Worker) -> None:
        self._hanging = {one: theirs for one, theirs in self._hanging.items() if not theirs.ended}
        if not worker.ended:
            self._hanging[key] = worker

    async def _facts(self, asked: Asked, worker: Worker | None = None) -> checks.Facts | tuple[why.Refusal, ...]:
        """Read the facts of a process; return a refusal where the driver gives none."""
        try:
            snapshot = await self._look(time.monotonic(), worker)
        except TROUBLES as trouble:
            if worker is not None and not worker.usable:
                raise
            return (_refusal(trouble),)
        request = asked.request
        return facts.read(
            *asked.key, snapshot, request.inside, allow_open_module=request.allow_open_module
        )

    async def _look(self, since: float, worker: Worker | None = None) -> Snapshot:
        """Return the GPUs as they were at that time of the monotonic clock, or later."""
        async with self._looking:
            if self._seen[0] < since:
                now = time.monotonic()
                if worker is not None:
                    text = await worker.call("snapshot", seconds=self._timeouts.look)
                else:
                    async with self._workers.one() as other:
                        text = await other.call("snapshot", seconds=self._timeouts.look)
                self._seen = (now, Snapshot.from_json(text))
            return self._seen[1]

    @contextlib.asynccontextmanager
    async def _alone(self, key: Key) -> AsyncIterator[None]:
        """Let nothing else be done to a process meanwhile."""
        turn = self._turns.setdefault(key, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                self._turns.pop(key, None)


@dataclass(slots=True, eq=False)
class _Turn:
    """Whose turn it is to do something to a process.

    Attributes:
        lock: held by who does.
        wanted: how many do, or wait for it.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0


def _refusal(trouble: Exception) -> why.Refusal:
    """Return the refusal for what a call ended in."""
    if isinstance(trouble, GivenUp):
        return why.Unanswered(trouble.call, trouble.seconds)
    if isinstance(trouble, DriverError):
        return why.Declined(trouble.call, trouble.code)
    return why.Unanswered(str(trouble), 0.0)


def _not_running(found: State | Found, seconds: float) -> why.Refusal:
    if found is Found.GONE:
        return why.Ended()
    if found is Found.NO_CUDA:
        return why.HoldsNothing()
    if isinstance(found, State):
        return why.Elsewhere(found.value)
    return why.Unanswered("cuCheckpointProcessGetState", seconds)


def _unsettled(entry: Entry) -> why.Refusal:
    """Return why nothing is done about a process in this phase."""
    if entry.phase is Phase.FAILED:
        return why.Lost()
    return why.Stopped() if entry.trouble == "stopped" else why.Unanswered(entry.phase.value, 0.0)


def _unless_back(entry: Entry | None, found: State | Found) -> tuple[why.Refusal, ...]:
    """Return why a process did not come back; nothing where it is there."""
    if entry is None:
        return (why.Ended(),) if found is Found.GONE else ()
    if entry.phase is Phase.BACK:
        return ()
    return (_unsettled(entry),) if entry.phase is not Phase.PARKED else (why.Unanswered("restore", 0.0),)
