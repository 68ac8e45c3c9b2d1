"""All that the helper does to processes: it parks them, brings them back and sets them right, one thing at a time."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tfgpu_magic.parking.calls import Calls, Timeouts
from tfgpu_magic.parking.messages import Outcome
from tfgpu_magic.parking.park import Park
from tfgpu_magic.parking.refusals import CANCELLED
from tfgpu_magic.parking.settling import Settling
from tfgpu_magic.parking.unpark import Unpark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.parking.calls import Asked
    from tfgpu_magic.parking.ledger import Key, Ledger
    from tfgpu_magic.parking.room import Waiting
    from tfgpu_magic.parking.workers import Workers


_POLL = 0.05  # seconds between two looks whether a process's turn has come


class Operations:
    """What is done to processes, at most one thing to each at a time.

    Args:
        ledger: what is parked.
        workers: who makes the driver's calls.
        waiting: who waits for room.
        timeouts: how long each call may take.
    """

    def __init__(self, ledger: Ledger, workers: Workers, waiting: Waiting, timeouts: Timeouts) -> None:
        calls = Calls(workers, timeouts)
        self._ledger = ledger
        self._settling = Settling(ledger, calls)
        self._park = Park(ledger, calls, self._settling)
        self._unpark = Unpark(ledger, calls, self._settling, waiting)
        self._doing: dict[Key, Asked | None] = {}

    async def do(self, asked: Asked) -> Outcome:
        """Do what is asked, once nothing else is done to the process; its asker is told how that gets on."""
        if asked.request.deed == "check":
            return await self._park.check(asked)
        while not self.idle(asked.key):
            if asked.called_off:
                return Outcome(entry=self._ledger.entry(asked.key), refusals=(CANCELLED(),))
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
                await self._settling.settled(key)

    @contextlib.contextmanager
    def _alone(self, key: Key, asked: Asked | None = None) -> Iterator[None]:
        """Let nothing else be done to a process meanwhile."""
        self._doing[key] = asked
        try:
            yield
        finally:
            del self._doing[key]
