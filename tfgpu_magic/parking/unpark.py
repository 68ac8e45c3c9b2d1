"""Brings a process back: waits for its turn and for room, has the room taken, and restores into it at once.

A restore that finds too little room fails for good, so none is tried on hope: the room was seen to be free, it is
claimed, and it is held by a placeholder until the moment before.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking import checks, driver, facts
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.calls import TROUBLES, refusal
from tfgpu_magic.parking.driver import DriverError
from tfgpu_magic.parking.messages import Outcome, Progress
from tfgpu_magic.parking.record import Entry
from tfgpu_magic.parking.room import rooms
from tfgpu_magic.parking.settling import unless_back, unsettled
from tfgpu_magic.parking.states import UNSETTLED, Found, Phase, State

if TYPE_CHECKING:
    from tfgpu_magic.model.snapshot import Snapshot
    from tfgpu_magic.parking.calls import Asked, Calls
    from tfgpu_magic.parking.ledger import Ledger
    from tfgpu_magic.parking.room import Place, Waiting
    from tfgpu_magic.parking.settling import Settling
    from tfgpu_magic.parking.workers import Worker

_FINAL = (driver.OUT_OF_MEMORY, driver.NO_SUCH_PROCESS)
"""The errors of a restore that has failed for good: the first time, and every later time."""

_ADOPTED: dict[State | Found, Phase] = {
    State.LOCKED: Phase.UNLOCKING,
    State.CHECKPOINTED: Phase.PARKED,
    State.FAILED: Phase.FAILED,
}
"""How far a process has come that an earlier helper had parked; one that died in the restore leaves it locked."""


class Unpark:
    """The way back.

    Args:
        ledger: what is parked.
        calls: the driver's calls.
        settling: sets right what goes wrong.
        waiting: who waits for room.
    """

    def __init__(self, ledger: Ledger, calls: Calls, settling: Settling, waiting: Waiting) -> None:
        self._ledger, self._calls, self._settling, self._waiting = ledger, calls, settling, waiting

    async def unpark(self, asked: Asked) -> Outcome:
        """Bring a process back, as soon as there is room for it."""
        entry = await self._settling.settled_in_time(asked) or await self._adopted(asked)
        if isinstance(entry, why.Refusal):
            return Outcome(refusals=(entry,))
        if entry.phase is Phase.BACK:
            return Outcome(entry=entry)
        if entry.phase in UNSETTLED and asked.called_off:
            return Outcome(entry=entry, refusals=(why.CANCELLED(),))
        if entry.phase is not Phase.PARKED:
            return Outcome(entry=entry, refusals=(unsettled(entry),))
        if not entry.held:  # what it needs is not known, so nothing could be taken for it
            return Outcome(entry=entry, refusals=(why.NOT_PARKED(),))
        place = self._waiting.enter(entry)
        try:
            return await self._in_turn(asked, entry, place)
        except TROUBLES as trouble:
            changed = await self._settling.settled(asked.key)
            back = changed is not None and changed.phase is Phase.BACK
            return Outcome(entry=changed, refusals=() if back else (refusal(trouble),))
        finally:
            self._ledger.want(asked.key, wanted=False)
            self._waiting.leave(place)

    async def _adopted(self, asked: Asked) -> Entry | why.Refusal:
        """Return a process that an earlier helper has parked whose record is lost, set right, or why there is none."""
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
                self._ledger.begin(Entry(pid=pid, began=start, phase=phase, since=now, held=request.held, name=name))
        except TROUBLES as trouble:  # a restore may still be under way
            return refusal(trouble)
        except MonitorError as error:
            return why.UNRECORDED(str(error))
        return await self._settling.settled_in_time(asked) or why.NOT_PARKED()

    async def _in_turn(self, asked: Asked, entry: Entry, place: Place) -> Outcome:
        """Wait until it is the process's turn and there is room, and bring it back, unless something else has."""
        async with self._calls.worker() as worker:
            state = await self._calls.state(worker, asked.key)
            if state in (State.RUNNING, State.LOCKED):
                changed = await self._settling.set_right(worker, entry)
                return Outcome(entry=changed, refusals=unless_back(changed, state))
        times, since = self._calls.timeouts, time.monotonic()
        pause = times.between
        while not asked.called_off:
            if not entry.alive():
                return Outcome(refusals=(why.ENDED(),))
            if facts.stopped(entry.pid):
                return Outcome(entry=entry, refusals=(why.STOPPED(),))
            snapshot = await self._calls.look(since)
            trouble: why.Refusal | None = None if snapshot.error is None else why.NO_DRIVER(snapshot.error)
            if self._waiting.claim(place, snapshot):
                done = await self._bring_back(asked, entry)
                if isinstance(done, Outcome):
                    return done
                self._waiting.unclaim(place)
                trouble, pause = done, min(2 * pause, times.again)
            else:
                pause = times.between
            self._ledger.want(asked.key, wanted=True)
            asked.tell(self._progress(entry, place, snapshot, trouble))
            await asked.pause(pause)
            since = time.monotonic() - times.between / 2
        return Outcome(entry=entry, refusals=(why.CANCELLED(),))

    def _progress(self, entry: Entry, place: Place, snapshot: Snapshot, trouble: why.Refusal | None) -> Progress:
        """Return for whom and for how long a process waits."""
        rates = self._ledger.record.rates
        return Progress(
            step="waits",
            size=entry.size,
            seconds=rates.seconds_back(entry.size),
            ahead=tuple((one.pid, rates.seconds_back(one.size)) for one in self._waiting.ahead(place)),
            rooms=() if snapshot.error is not None else rooms(entry, snapshot),
            trouble=trouble,
        )

    async def _bring_back(self, asked: Asked, entry: Entry) -> Outcome | why.Refusal:
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

    async def _restore(self, worker: Worker, asked: Asked, entry: Entry) -> Outcome:
        """Bring a process back into the room that the worker holds for it."""
        times, key = self._calls.timeouts, asked.key
        state = await self._calls.state(worker, key)
        if state is not State.CHECKPOINTED:
            changed = await self._settling.set_right(worker, entry)
            return Outcome(entry=changed, refusals=unless_back(changed, state))
        if asked.called_off:
            return Outcome(entry=entry, refusals=(why.CANCELLED(),))
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
        return Outcome(entry=self._ledger.move(entry, Phase.BACK, returns=entry.returns + 1), seconds=took)

    async def _not_restored(self, worker: Worker, entry: Entry, error: DriverError) -> Outcome:
        """Find out what a failed restore has left: one that found too little room has failed for good."""
        declined = why.DECLINED(error.call, error.code)
        if error.call != driver.RESTORE:  # it was not begun
            return Outcome(entry=self._ledger.move(entry, Phase.PARKED), refusals=(declined,))
        found = await self._calls.state(worker, (entry.pid, entry.began))
        away = found is State.CHECKPOINTED or (found is Found.UNKNOWN and not facts.stopped(entry.pid))
        if away and error.code in _FINAL:
            return Outcome(entry=self._ledger.move(entry, Phase.FAILED), refusals=(declined, why.LOST()))
        changed = await self._settling.set_right(worker, entry)
        if changed is not None and changed.phase is Phase.PARKED:
            return Outcome(entry=changed, refusals=(declined,))
        refused = unless_back(changed, found)
        return Outcome(entry=changed, refusals=refused and (declined, *refused))
