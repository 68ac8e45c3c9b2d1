"""Sets processes right that something has died over, and those whose call has failed: what `states` decides is done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfgpu_magic.parking import facts
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.calls import TROUBLES
from tfgpu_magic.parking.messages import Progress
from tfgpu_magic.parking.states import SETTLED, UNSETTLED, Action, Found, Phase, State, reconcile

if TYPE_CHECKING:
    from tfgpu_magic.parking.calls import Asked, Calls
    from tfgpu_magic.parking.ledger import Key, Ledger
    from tfgpu_magic.parking.record import Entry
    from tfgpu_magic.parking.workers import Worker

STOPPED, HANGS, SILENT = "stopped", "hangs", "unanswered"
"""Why a process is not set right for now: it is stopped, a call for it hangs, the driver did not answer."""


class Settling:
    """What is done to processes whose last call had no known end.

    Args:
        ledger: what is parked.
        calls: the driver's calls.
    """

    def __init__(self, ledger: Ledger, calls: Calls) -> None:
        self._ledger, self._calls = ledger, calls

    async def settled(self, key: Key) -> Entry | None:
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

    async def settled_in_time(self, asked: Asked) -> Entry | None:
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

    async def set_right(self, worker: Worker, entry: Entry, *, never_away: bool = False) -> Entry | None:
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
            action = reconcile(phase, State.RUNNING, returned=returned)
        if action is Action.WAIT:
            return self._ledger.note(entry, SILENT)
        after = SETTLED[action]
        if after is None:
            self._ledger.forget(entry)
            return None
        came_back = after is Phase.BACK and phase is not Phase.LOCKING
        return self._ledger.move(entry, after, returns=entry.returns + came_back)


def unsettled(entry: Entry) -> why.Refusal:
    """Return why nothing is done about a process in this phase."""
    if entry.phase is Phase.FAILED:
        return why.LOST()
    return why.STOPPED() if entry.trouble == STOPPED else why.UNANSWERED(entry.phase.value)


def unless_back(entry: Entry | None, found: State | Found) -> tuple[why.Refusal, ...]:
    """Return why a process did not come back; nothing where it is there."""
    if entry is None:
        return (why.ENDED(),) if found is Found.GONE else ()
    if entry.phase is Phase.BACK:
        return ()
    return (why.UNANSWERED("restore"),) if entry.phase is Phase.PARKED else (unsettled(entry),)
