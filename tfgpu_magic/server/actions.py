"""What requests that do something to a process have in common: who may make them, what they name, and their time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from tfgpu_magic.server.handlers import RESOURCE
from tfgpu_magic.server.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tfgpu_magic.monitor.owners import Notebook

T = TypeVar("T")

PROCESS_TIMEOUT = 5.0
"""Seconds to wait for the facts about a process, which take as long as a driver holds it."""


class ActionHandler(APIHandler):
    """Does something to a process. The body is JSON: ``{"pid": 4711}``, with what each action adds."""

    auth_resource = RESOURCE

    def initialize(self, kernels: Callable[[], Awaitable[Mapping[int, Notebook]]]) -> None:
        """Take the function that returns this server's kernels by pid."""
        self._kernels = kernels

    @web.authenticated
    @authorized("execute")  # type: ignore[untyped-decorator]  # its type is lost on the way
    async def post(self) -> None:
        """Do it."""
        body: object = self.get_json_body()
        fields = body if isinstance(body, dict) else {}
        pid = number(fields.get("pid"))
        if pid is None:
            raise web.HTTPError(400, "pid is no process id")
        self.set_status(await self.do(pid, fields))
        await self.finish()

    async def do(self, pid: int, fields: Mapping[str, Any]) -> int:
        """Do it, and return the answer's status.

        Args:
            pid: the process.
            fields: the body.

        Raises:
            web.HTTPError: it is not done.
        """
        raise NotImplementedError


def number(value: object) -> int | None:
    """Return a whole number above 0; None of anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


async def read(pid: int, job: Callable[[], T]) -> T:
    """Run a job that reads a process's facts on a thread of its own, and return its result.

    Raises:
        web.HTTPError: 504, it takes too long.
    """
    try:
        return await within(PROCESS_TIMEOUT, job)
    except asyncio.TimeoutError:
        raise web.HTTPError(504, f"process {pid} cannot be read: it hangs in the driver, as it seems") from None


async def within(seconds: float, job: Callable[[], T]) -> T:
    """Run a job on a thread of its own, and return its result; one that takes longer goes on alone.

    Raises:
        asyncio.TimeoutError: it takes longer.
    """
    worker = Worker()
    doing = worker.do(job)
    worker.close(lambda: None)
    return await asyncio.wait_for(doing, seconds)
