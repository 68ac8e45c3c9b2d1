"""All that the helper does to processes: it parks them, brings them back and sets them right, one thing at a time."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgpu_magic.parking.calls import Calls, Timeouts
from tfgpu_magic.parking.park import Park
from tfgpu_magic.parking.settling import Settling
from tfgpu_magic.parking.unpark import Unpark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tfgpu_magic.parking.asked import Asked
    from tfgpu_magic.parking.ledger import Key, Ledger
    from tfgpu_magic.parking.messages import Outcome
    from tfgpu_magic.parking.room import Waiting
    from tfgpu_magic.parking.workers import Workers


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
        self._settling = Settling(ledger, calls)
        self._park = Park(ledger, calls, self._settling)
        self._unpark = Unpark(ledger, calls, self._settling, waiting)
        self._turns: dict[Key, _Turn] = {}

    async def do(self, asked: Asked) -> Outcome:
        """Do what is asked."""
        if asked.request.deed == "check":
            return await self._park.check(asked)
        async with self._alone(asked.key):
            return await (self._park.park(asked) if asked.request.deed == "park" else self._unpark.unpark(asked))

    def idle(self, key: Key) -> bool:
        """Tell whether nothing is being done to a process."""
        return key not in self._turns

    async def settle(self, key: Key) -> None:
        """Set a process right, if nothing is being done to it."""
        if self.idle(key):
            async with self._alone(key):
                await self._settling.settled(key)

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
