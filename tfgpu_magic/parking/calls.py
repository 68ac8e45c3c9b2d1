"""What the helper has workers do: the driver's calls for a process, each for a limited time, and looks at all GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tfgpu_magic.model.snapshot import Snapshot
from tfgpu_magic.monitor.owners.pids import began
from tfgpu_magic.parking import facts
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.driver import DriverError
from tfgpu_magic.parking.states import Found, State
from tfgpu_magic.parking.workers import Died, GivenUp
from tfgpu_magic.probe import within

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tfgpu_magic.parking.checks import Facts
    from tfgpu_magic.parking.ledger import Key
    from tfgpu_magic.parking.messages import Progress, Request
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
        again: the longest between two attempts to take room that the driver does not give.
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
    again: float = 10.0

    def copying(self, size: int) -> float:
        """Return the seconds for a copy of so many bytes."""
        return self.copy + size / self.slowest


class Asked:
    """A request that the helper is working on: it may be called off by who waits for it, who is told how it gets on.

    Args:
        request: what is asked for.
        key: the process.
        tell: takes each progress.

    Attributes:
        said: the latest progress; None where there is none yet.
    """

    def __init__(self, request: Request, key: Key, tell: Callable[[Progress], None] = lambda _: None) -> None:
        self.request, self.key = request, key
        self.said: Progress | None = None
        self._tell = tell
        self._off = asyncio.Event()

    def tell(self, progress: Progress) -> None:
        """Tell its asker how it gets on."""
        self.said = progress
        self._tell(progress)

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


class Calls:
    """The calls of one helper.

    Args:
        workers: who makes them.
        timeouts: how long each may take.

    Attributes:
        timeouts: the same.
    """

    def __init__(self, workers: Workers, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self._workers = workers
        self._hanging: dict[Key, Worker] = {}
        self._looking = asyncio.Lock()
        self._seen: tuple[float, Snapshot] = (0.0, Snapshot(time=0.0))

    def worker(self) -> AbstractAsyncContextManager[Worker]:
        """Give a worker to one task, as `Workers.one`."""
        return self._workers.one()

    def hang(self, key: Key) -> bool:
        """Tell whether a worker that was given up may still be in a call for a process."""
        self._hanging = {one: worker for one, worker in self._hanging.items() if not worker.ended}
        return key in self._hanging

    async def state(self, worker: Worker, key: Key) -> State | Found:
        """Ask for a process's state; it is not asked for where the process has ended, or is stopped.

        Raises:
            DriverError: the driver declines.
            GivenUp: it hangs.
            Died: the worker has ended.
        """
        if began(key[0]) != key[1]:
            return Found.GONE
        if facts.stopped(key[0]):
            return Found.UNKNOWN
        try:
            found = await worker.state(key[0], seconds=self.timeouts.state)
        except (GivenUp, Died):
            self._remember(key, worker)
            raise
        # The driver's number for that is also one of an error of the system.
        return Found.UNKNOWN if found is Found.GONE and began(key[0]) == key[1] else found

    async def make(self, worker: Worker, key: Key, call: str, *arguments: object, seconds: float) -> None:
        """Make a call for a process; remember a worker that may still be in it.

        Raises:
            DriverError: the driver declines.
            GivenUp: it hangs.
            Died: the worker has ended.
        """
        try:
            await worker.call(call, key[0], *arguments, seconds=seconds)
        except (GivenUp, Died):
            self._remember(key, worker)
            raise

    async def facts(self, request: Request, key: Key, worker: Worker | None = None) -> Facts | why.Refusal:
        """Read the facts of a process; return a refusal where they cannot be had in time.

        Args:
            request: what says more about it.
            key: the process.
            worker: looks at the GPUs, and waits for no other look: the process may be locked; None is any.

        Raises:
            GivenUp: that worker hangs, and the process may be locked by it.
            Died: it has ended.
        """
        try:
            snapshot = await (self.look(time.monotonic()) if worker is None else self._look(worker))
        except TROUBLES as trouble:
            if worker is not None and not worker.usable:
                raise
            return refusal(trouble)
        read = partial(facts.read, *key, snapshot, request.inside, allow_open_module=request.allow_open_module)
        # What is read of a process that a driver holds may take until that ends.
        found = await asyncio.to_thread(within, self.timeouts.look, read)
        return why.UNANSWERED("/proc") if found is None else found

    async def look(self, since: float) -> Snapshot:
        """Return the GPUs as they were at that time of the monotonic clock, or later.

        Raises:
            DriverError: the driver declines.
            GivenUp: it hangs.
            Died: the worker has ended.
        """
        async with self._looking:
            if self._seen[0] < since:
                now = time.monotonic()
                async with self._workers.one() as worker:
                    self._seen = (now, await self._look(worker))
            return self._seen[1]

    async def _look(self, worker: Worker) -> Snapshot:
        return Snapshot.from_json(await worker.call("snapshot", seconds=self.timeouts.look))

    def _remember(self, key: Key, worker: Worker) -> None:
        if not worker.ended:
            self._hanging[key] = worker


def refusal(trouble: Exception) -> why.Refusal:
    """Return the refusal for what a call ended in."""
    if isinstance(trouble, GivenUp):
        return why.UNANSWERED(trouble.call)
    if isinstance(trouble, DriverError):
        return why.DECLINED(trouble.call, trouble.code)
    return why.UNANSWERED(str(trouble))
