"""``POST <base>/tfgpu-magic/end``: ends a process of the user's own that holds memory and no server here knows.

A kernel of this server is restarted and shut down by Jupyter's own requests, and an isolated call is ended by `stop`.
Between the question and the answer a process may end and its pid be given to another one: so a request names when the
process began, and is for no other.
"""

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

from tfgpu_magic.monitor.driver_users import opens_driver
from tfgpu_magic.monitor.pids import began, family
from tfgpu_magic.server.handlers import RESOURCE
from tfgpu_magic.server.stop import PROCESS_TIMEOUT
from tfgpu_magic.server.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tfgpu_magic.monitor.owners import Notebook


class EndHandler(APIHandler):
    """Asks a process to end, or kills one that does not.

    The body is JSON: ``{"pid": 4711, "began": 123456}``, with ``"kill": true`` for the latter; `began` is the row's
    figure. 204: the signal was sent; 400: the request is malformed; 403: the process is the server, or one of its
    kernels or their children; 404: there is no such process any more, or it holds no GPU; 504: it cannot be read.
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
        pid, start = _number(fields.get("pid")), _number(fields.get("began"))
        if pid is None or start is None:
            raise web.HTTPError(400, "pid and began are no process")
        number = signal.SIGKILL if fields.get("kill") is True else signal.SIGTERM
        kernels = set(await self._kernels())
        worker = Worker()
        ending = worker.do(partial(end, pid, start, number, kernels))
        worker.close(lambda: None)
        if not (await asyncio.wait({ending}, timeout=PROCESS_TIMEOUT))[0]:
            raise web.HTTPError(504, f"process {pid} cannot be read: it hangs in the driver, as it seems")
        if (status := ending.result()) != 204:
            raise web.HTTPError(status, f"process {pid} is not ended")
        self.set_status(204)
        await self.finish()


def end(pid: int, start: int, number: int, kernels: set[int]) -> int:
    """Send a signal to a process of this user's own, if it is the one that began then, and return the answer's status.

    Args:
        pid: its pid.
        start: when it began (`pids.began`).
        number: the signal.
        kernels: the pids of this server's kernels.
    """
    try:
        fd = _descriptor(pid)  # from here on it is known by this, and not by its pid
    except ProcessLookupError:
        return 404
    try:
        # Whichever process has the pid now has had it since before the descriptor was opened, if it began then.
        process = psutil.Process(pid)
        if began(pid) != start or process.uids().real != os.getuid() or opens_driver(pid) is False:
            return 404
        if pid in family() or not kernels.isdisjoint({pid, *(parent.pid for parent in process.parents())}):
            return 403
        if fd is not None:
            signal.pidfd_send_signal(fd, number)
        elif began(pid) == start:  # it may have ended while all that was read
            os.kill(pid, number)
        else:
            return 404
    except (psutil.Error, OSError):
        return 404  # it has ended meanwhile
    finally:
        if fd is not None:
            os.close(fd)
    return 204


def _descriptor(pid: int) -> int | None:
    """Open a descriptor of a process, by which it is known even when its pid is another's by now.

    Returns:
        The descriptor; None where there are none: in Linux before 5.3, in some sandboxes and builds of Python.

    Raises:
        ProcessLookupError: there is no such process.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
