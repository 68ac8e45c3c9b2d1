"""The helper's workers: processes that call the driver for it, each for one task at a time, given up when they hang.

One that has started the driver waits for the next task: to start it takes seconds where nothing else keeps it awake.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from tfgpu_magic.parking.driver import DriverError
from tfgpu_magic.parking.states import Found, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

CODE = "import sys; sys.path += sys.argv[1:]; from tfgpu_magic.parking.worker import main; main()"
"""What a worker runs."""
START_TIMEOUT = 60.0
"""Seconds in which the driver starts: without persistence mode it takes one to three for each GPU."""
SPARE = 2
"""How many workers wait for the next task."""
KILL_TIMEOUT = 2.0
"""Seconds in which a killed worker ends, unless the driver holds it in uninterruptible sleep."""

_LONGEST_LINE = 2**22  # bytes of an answer: a snapshot of some 50,000 processes


class GivenUp(Exception):
    """A worker that did not answer in time, and was killed.

    Attributes:
        call: the call that it hung in.
        seconds: how long it was waited for.
    """

    def __init__(self, call: str, seconds: float) -> None:
        super().__init__(f"{call}: no answer within {seconds:g} s")
        self.call, self.seconds = call, seconds


class Died(Exception):
    """A worker that ended while it made a call; what became of the call is not known.

    Attributes:
        call: that call.
    """

    def __init__(self, call: str) -> None:
        super().__init__(call)
        self.call = call


class Worker:
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
        line = json.dumps({"call": call, "arguments": arguments}) + "\n"
        assert self._process.stdin is not None  # noqa: S101  # a pipe was asked for
        try:
            self._process.stdin.write(line.encode())
            await self._process.stdin.drain()
        except OSError:
            await self.give_up()
            raise Died(call) from None
        return await self._answer(call, seconds)

    async def state(self, pid: int, *, seconds: float) -> State | Found:
        """Return a process's state, or what is found instead."""
        answer = await self.call("state", pid, seconds=seconds)
        return State(answer) if isinstance(answer, int) else Found(answer)

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


class Workers:
    """All workers.

    Args:
        paths: where a worker finds what it imports.
        lock: a descriptor that every worker keeps open: its lock is held as long as any of them lives.
    """

    def __init__(self, paths: Sequence[str], lock: int) -> None:
        self._paths, self._lock = list(paths), lock
        self._free: list[Worker] = []

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[Worker]:
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

    async def _next(self) -> Worker:
        while self._free:
            worker = self._free.pop()
            if worker.usable:
                return worker
        worker = Worker(await self._start())
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
