"""``POST <base>/tfgpu-magic/stop``: ends an isolated call of one of this server's kernels, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

import psutil
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from tfgpu_magic.monitor.process_names import is_call
from tfgpu_magic.server.handlers import RESOURCE
from tfgpu_magic.server.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from tfgpu_magic.monitor.owners import Notebook

PROCESS_TIMEOUT = 5.0
"""Seconds to wait for the facts about a process, which take as long as a driver holds it."""


class StopHandler(APIHandler):
    """Interrupts a call as Ctrl-C does, or kills one that ignores interrupts.

    The body is JSON: ``{"pid": 4711}``, with ``"kill": true`` for the latter. How the call ended is shown below its
    cell. 204: the signal was sent; 400: the request is malformed; 404: the pid is no call of these kernels; 504: the
    process cannot be read.
    """

    auth_resource = RESOURCE

    def initialize(self, kernels: Callable[[], Awaitable[Mapping[int, Notebook]]]) -> None:
        """Take the function that returns this server's kernels by pid."""
        self._kernels = kernels

    @web.authenticated
    @authorized("execute")  # type: ignore[untyped-decorator]  # its type is lost on the way
    async def post(self) -> None:
        """Send the signal."""
        body: object = self.get_json_body()
        fields = body if isinstance(body, dict) else {}
        pid = fields.get("pid")
        if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
            raise web.HTTPError(400, "pid is no process id")
        number = signal.SIGKILL if fields.get("kill") is True else signal.SIGINT
        kernels = set(await self._kernels())
        worker = Worker()
        stopping = worker.do(partial(stop, pid, number, kernels))
        worker.close(lambda: None)
        if not (await asyncio.wait({stopping}, timeout=PROCESS_TIMEOUT))[0]:
            raise web.HTTPError(504, f"process {pid} cannot be read: it hangs in the driver, as it seems")
        if not stopping.result():
            raise web.HTTPError(404, f"process {pid} is no isolated call of a kernel of this server")
        self.set_status(204)
        await self.finish()


def stop(pid: int, number: int, kernels: Collection[int]) -> bool:
    """Send a signal to a call and its children, and tell whether it is a call of one of the kernels.

    Args:
        pid: the call's process.
        number: the signal.
        kernels: the kernels' pids.
    """
    try:
        process = psutil.Process(pid)
        if process.uids().real != os.getuid() or not is_call(process):
            return False
        if not any(parent.pid in kernels for parent in process.parents()):
            return False
        os.killpg(pid, number)  # each call leads a process group of its own
    except (psutil.Error, OSError):
        return False  # it has ended meanwhile
    return True
