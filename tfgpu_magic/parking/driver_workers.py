"""The parker's driver workers: processes that make the driver's calls for it, each for a limited time.

Each works for one task at a time, and is given up when it hangs. One that has started the driver waits for the next
task: to start it takes seconds where nothing else keeps it awake.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tfgpu_magic.model.snapshot import Snapshot
from tfgpu_magic.monitor.owners.pids import began
from tfgpu_magic.parking import facts
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.driver import DriverError
from tfgpu_magic.parking.driver_worker import TROUBLES, Died, GivenUp
from tfgpu_magic.parking.gpu_state import Timeouts, refusal
from tfgpu_magic.parking.states import CudaState, Found
from tfgpu_magic.probe import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from tfgpu_magic.parking.checks import ParkFacts
    from tfgpu_magic.parking.messages import Progress, Request
    from tfgpu_magic.parking.record import Key

CODE = "import sys; sys.path += sys.argv[1:]; from tfgpu_magic.parking.driver import main; main()"
"""What a worker runs."""
START_TIMEOUT = 60.0
"""Seconds in which the driver starts: without persistence mode it takes one to three for each GPU."""
SPARE = 2
"""How many workers wait for the next task."""
KILL_TIMEOUT = 2.0
"""Seconds in which a killed worker ends, unless the driver holds it in uninterruptible sleep."""

_LONGEST_LINE = 2**22  # bytes of an answer: a snapshot of some 50,000 processes


class PoolWorker:
    """One worker.

    Args:
        process: its process, which has not answered yet.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._idle = False

    @property
    def usable(self) -> bool:
        """Whether it lives, and waits for an order."""
        return self._process.returncode is None and self._idle

    async def begin(self) -> None:
        """Wait until it has started the driver.

        Raises:
            DriverError: the driver cannot be started.
            GivenUp: it hangs.
            Died: it has ended.
        """
        await self._answer("cuInit", START_TIMEOUT)

    async def call(self, call: str, *arguments: object, seconds: float) -> Any:
        """Have it make one call, and return the answer.

        Raises:
            DriverError: the driver declines.
            GivenUp: it hangs.
            Died: it has ended.
        """
        self._idle = False
        line = json.dumps({"call": call, "arguments": arguments, "seconds": seconds + 2}) + "\n"
        assert self._process.stdin is not None  # noqa: S101  # a pipe was asked for
        try:
            self._process.stdin.write(line.encode())
            await self._process.stdin.drain()
        except OSError:
            await self.give_up()
            raise Died(call) from None
        return await self._answer(call, seconds)

    async def state(self, pid: int, *, seconds: float) -> CudaState | Found:
        """Return a process's state, or what is found instead."""
        answer = await self.call("state", pid, seconds=seconds)
        return CudaState(answer) if isinstance(answer, int) else Found(answer)

    async def give_up(self) -> None:
        """Kill it, and wait a moment for its end."""
        self._idle = False
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), KILL_TIMEOUT)

    @property
    def ended(self) -> bool:
        """Whether its process has ended: one that cannot be killed may still do what it was told."""
        return self._process.returncode is not None

    async def _answer(self, call: str, seconds: float) -> Any:
        assert self._process.stdout is not None  # noqa: S101  # a pipe was asked for
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), seconds)
        except asyncio.TimeoutError:
            await self.give_up()
            raise GivenUp(call, seconds) from None
        except asyncio.CancelledError:
            await self.give_up()
            raise
        if not line.endswith(b"\n"):  # it may have ended in the middle of one
            await self.give_up()
            raise Died(call)
        answer = json.loads(line)
        self._idle = True
        if "code" in answer:
            raise DriverError(answer["call"], answer["code"])
        return answer["answer"]


class DriverWorkers:
    """All workers.

    Args:
        paths: where a worker finds what it imports.
        lock: a descriptor that every worker keeps open: its lock is held as long as any of them lives.
    """

    def __init__(self, paths: Sequence[str], lock: int) -> None:
        self._paths, self._lock = list(paths), lock
        self._free: list[PoolWorker] = []

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[PoolWorker]:
        """Give a worker to one task, and keep it for the next one if it can be used again.

        Raises:
            DriverError: the driver cannot be started.
            GivenUp: it hangs.
            Died: no worker can be started.
        """
        worker = await self._next()
        try:
            yield worker
        finally:
            if worker.usable and len(self._free) < SPARE:
                self._free.append(worker)
            else:
                await worker.give_up()

    async def close(self) -> None:
        """End those that wait for an order."""
        free, self._free = self._free, []
        await asyncio.gather(*(worker.give_up() for worker in free))

    async def _next(self) -> PoolWorker:
        while self._free:
            worker = self._free.pop()
            if worker.usable:
                return worker
        worker = PoolWorker(await self._start())
        await worker.begin()
        return worker

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", "-c", CODE, *self._paths,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if not name.startswith("CUDA_")},  # all GPUs
                pass_fds=(self._lock,),
                start_new_session=True,
                limit=_LONGEST_LINE,
            )  # fmt: skip
        except OSError as error:
            raise Died("start") from error


class OpenRequest:
    """A request that the parker is working on: it may be called off by who waits for it, who is told how it gets on.

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
    """The calls of one parker.

    Args:
        workers: who makes them.
        timeouts: how long each may take.

    Attributes:
        timeouts: the same.
    """

    def __init__(self, workers: DriverWorkers, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self._workers = workers
        self._hanging: dict[Key, PoolWorker] = {}
        self._looking = asyncio.Lock()
        self._seen: tuple[float, Snapshot] = (0.0, Snapshot(time=0.0))

    def worker(self) -> AbstractAsyncContextManager[PoolWorker]:
        """Give a worker to one task, as `DriverWorkers.one`."""
        return self._workers.one()

    def hang(self, key: Key) -> bool:
        """Tell whether a worker that was given up may still be in a call for a process."""
        self._hanging = {one: worker for one, worker in self._hanging.items() if not worker.ended}
        return key in self._hanging

    async def state(self, worker: PoolWorker, key: Key) -> CudaState | Found:
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

    async def make(self, worker: PoolWorker, key: Key, call: str, *arguments: object, seconds: float) -> None:
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

    async def facts(self, request: Request, key: Key, worker: PoolWorker | None = None) -> ParkFacts | why.Refusal:
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

    async def _look(self, worker: PoolWorker) -> Snapshot:
        return Snapshot.from_json(await worker.call("snapshot", seconds=self.timeouts.look))

    def _remember(self, key: Key, worker: PoolWorker) -> None:
        if not worker.ended:
            self._hanging[key] = worker
