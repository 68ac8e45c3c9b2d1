"""Parks a process: checks, the lock, the checks again now that nothing of it can change, and the copy to the host."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking import checks, driver
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.calls import TROUBLES, refusal
from tfgpu_magic.parking.driver import DriverError
from tfgpu_magic.parking.messages import Outcome, Progress
from tfgpu_magic.parking.record import Entry
from tfgpu_magic.parking.settling import unsettled
from tfgpu_magic.parking.states import UNSETTLED, Found, Phase, State

if TYPE_CHECKING:
    from tfgpu_magic.parking.calls import Asked, Calls
    from tfgpu_magic.parking.ledger import Ledger
    from tfgpu_magic.parking.record import Held
    from tfgpu_magic.parking.settling import Settling
    from tfgpu_magic.parking.workers import Worker


class Park:
    """The way out.

    Args:
        ledger: what is parked.
        calls: the driver's calls.
        settling: sets right what goes wrong.
    """

    def __init__(self, ledger: Ledger, calls: Calls, settling: Settling) -> None:
        self._ledger, self._calls, self._settling = ledger, calls, settling

    async def check(self, asked: Asked) -> Outcome:
        """Tell whether a process could be parked, and why not."""
        entry = self._ledger.entry(asked.key)
        if entry is not None and (entry.parked or entry.phase is Phase.FAILED):
            return Outcome(entry=entry, refusals=() if entry.parked else (unsettled(entry),))
        return Outcome(entry=entry, refusals=(await self._judged(asked))[1])

    async def park(self, asked: Asked) -> Outcome:
        """Park a process; whatever goes wrong, it is not left locked."""
        before = await self._settling.settled_in_time(asked)
        if before is not None and before.phase is Phase.PARKED:
            return Outcome(entry=before)
        if before is not None and (before.phase in UNSETTLED or before.phase is Phase.FAILED):
            return Outcome(entry=before, refusals=(unsettled(before),))
        asked.tell(Progress(step="checks"))
        held, refused = await self._judged(asked)
        if refused:
            return Outcome(entry=before, refusals=refused)
        try:
            async with self._calls.worker() as worker:
                return await self._begin(worker, asked, before, held)
        except TROUBLES as trouble:
            entry = await self._settling.settled(asked.key)
            parked = entry is not None and entry.phase is Phase.PARKED
            return Outcome(entry=entry, refusals=() if parked else (refusal(trouble),))

    async def _judged(
        self, asked: Asked, worker: Worker | None = None
    ) -> tuple[tuple[Held, ...], tuple[why.Refusal, ...]]:
        """Return what a process holds, and every reason why it is not to be parked."""
        spoken_for = self._ledger.on_its_way_out()
        found = await self._calls.facts(asked.request, asked.key, worker)
        if not isinstance(found, checks.Facts):
            return (), (found,)
        if found.host is not None:  # others are copied there meanwhile
            spoken_for = max(spoken_for, self._ledger.on_its_way_out())
            found = replace(found, host=max(0, found.host - spoken_for))
        return found.known, checks.refusals(found)

    async def _begin(self, worker: Worker, asked: Asked, before: Entry | None, held: tuple[Held, ...]) -> Outcome:
        """Lock a process that nothing else has locked."""
        times, (pid, start) = self._calls.timeouts, asked.key
        state = await self._calls.state(worker, asked.key)
        if state is not State.RUNNING:
            return Outcome(entry=before, refusals=(_not_running(state),))
        if asked.called_off:
            return Outcome(entry=before, refusals=(why.CANCELLED(),))
        returns = 0 if before is None else before.returns
        entry = Entry(
            pid=pid, began=start, phase=Phase.LOCKING, since=time.time(), held=held, name=asked.request.name,
            returns=returns,
        )  # fmt: skip
        try:
            self._ledger.begin(entry)
        except MonitorError as error:
            return Outcome(entry=before, refusals=(why.UNRECORDED(str(error)),))
        asked.tell(Progress(step="locks"))
        try:
            await self._calls.make(worker, asked.key, "lock", times.lock, seconds=times.lock + times.more)
        except DriverError as error:
            late = error.code == driver.LOCK_TIMED_OUT
            reasons = (why.STILL_WORKING(times.lock),) if late else _declined(error, entry)
            return Outcome(entry=await self._settling.set_right(worker, entry), refusals=reasons)
        return await self._copy(worker, asked, entry)

    async def _copy(self, worker: Worker, asked: Asked, entry: Entry) -> Outcome:
        """Check a locked process again, and copy what it holds to the host."""
        held, refused = await self._judged(asked, worker)
        if asked.called_off:
            refused = (why.CANCELLED(),)
        if refused:
            return Outcome(entry=await self._settling.set_right(worker, entry), refusals=refused)
        entry = self._ledger.move(entry, Phase.CHECKPOINTING, held=held)
        seconds = self._ledger.record.rates.seconds_out(entry.size)
        asked.tell(Progress(step="copies out", size=entry.size, seconds=seconds))
        begun = time.monotonic()
        try:
            await self._calls.make(worker, asked.key, "checkpoint", seconds=self._calls.timeouts.copying(entry.size))
        except DriverError as error:
            changed = await self._settling.set_right(worker, entry, never_away=True)
            return Outcome(entry=changed, refusals=_declined(error, entry))
        took = time.monotonic() - begun
        self._ledger.measured(out=entry.size / max(took, 1e-3))
        return Outcome(entry=self._ledger.move(entry, Phase.PARKED), seconds=took)


def _declined(error: DriverError, entry: Entry) -> tuple[why.Refusal, ...]:
    """Return why a call has failed: a process may have ended in it."""
    declined = why.DECLINED(error.call, error.code)
    return (declined,) if entry.alive() else (declined, why.ENDED())


def _not_running(found: State | Found) -> why.Refusal:
    if found is Found.GONE:
        return why.ENDED()
    if found is Found.NO_CUDA:
        return why.HOLDS_NOTHING()
    if isinstance(found, State):
        return why.ELSEWHERE()
    return why.UNANSWERED("cuCheckpointProcessGetState")
