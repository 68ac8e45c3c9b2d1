"""``POST <base>/tfgpu-magic/stop`` ends an isolated call, ``.../end`` another process of the user's own; and no other.

A kernel of this server is restarted and shut down by Jupyter's own requests. Between the question and the answer a
process may end and its pid be given to another one: so a request to end one names when it began.
"""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from tfgpu_magic.machine.owners.pids import ancestors, family, is_call, kernel_of, opens_driver, start_time, user_of
from tfgpu_magic.server.handlers import RESOURCE
from tfgpu_magic.server.job_thread import JobThread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from tfgpu_magic.ground.rows import Notebook

T = TypeVar("T")

PROCESS_TIMEOUT = 5.0
"""Seconds to wait for the facts about a process, which take as long as a driver holds it."""


class ActionRefused(Exception):
    """What was asked is not done: the answer's status, and why. An `HTTPError` would double its per cent signs."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


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
        pid = positive_int(fields.get("pid"))
        if pid is None:
            raise web.HTTPError(400, "pid is no process id")
        try:
            self.set_status(await self.do(pid, fields))
        except ActionRefused as error:
            self.set_status(error.status)
            self.write({"message": str(error)})
        await self.finish()

    async def do(self, pid: int, fields: Mapping[str, Any]) -> int:
        """Do it, and return the answer's status.

        Args:
            pid: the process.
            fields: the body.

        Raises:
            ActionRefused: it is not done.
            web.HTTPError: the request is malformed.
        """
        raise NotImplementedError


def positive_int(value: object) -> int | None:
    """Return a whole number above 0; None of anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


async def run_reader(pid: int, job: Callable[[], T]) -> T:
    """Run a job that reads a process's facts on a thread of its own, and return its result.

    Raises:
        ActionRefused: 504, it takes too long.
    """
    try:
        return await run_within(PROCESS_TIMEOUT, job)
    except asyncio.TimeoutError:
        raise ActionRefused(504, f"process {pid} cannot be read: the system does not answer for it") from None


async def run_within(seconds: float, job: Callable[[], T]) -> T:
    """Run a job on a thread of its own, and return its result; one that takes longer goes on alone.

    Raises:
        asyncio.TimeoutError: it takes longer.
    """
    worker = JobThread()
    doing = worker.do(job)
    worker.close(lambda: None)
    return await asyncio.wait_for(doing, seconds)


class StopHandler(ActionHandler):
    """``POST <base>/tfgpu-magic/stop``: interrupts an isolated call as Ctrl-C does, or kills one that ignores that.

    The body is JSON: ``{"pid": 4711}``, with ``"kill": true`` for the latter. How the call ended is shown below its
    cell. 204: the signal was sent; 400: the request is malformed; 404: the pid is no call of these kernels; 504: the
    process cannot be read.
    """

    async def do(self, pid: int, fields: Mapping[str, Any]) -> int:
        """Send the signal."""
        sent = signal.SIGKILL if fields.get("kill") is True else signal.SIGINT
        kernels = set(await self._kernels())
        if not await run_reader(pid, partial(stop, pid, sent, kernels)):
            raise ActionRefused(404, f"process {pid} is no isolated call of a kernel of this server")
        return 204


def stop(pid: int, number: int, kernels: Collection[int]) -> bool:
    """Send a signal to a call and its children, and tell whether it is a call of one of the kernels.

    Args:
        pid: the call's process.
        number: the signal.
        kernels: the kernels' pids.
    """
    try:
        if user_of(pid) != os.getuid() or not is_call(pid):
            return False
        if not any(parent in kernels for parent in ancestors(pid)[1:]):
            return False
        os.killpg(pid, number)  # each call leads a process group of its own
    except OSError:
        return False  # it has ended meanwhile
    return True


class EndHandler(ActionHandler):
    """``POST <base>/tfgpu-magic/end``: asks a process of the user's own that computes on a GPU to end, or kills it.

    One that draws only, a desktop, stays.

    The body is JSON: ``{"pid": 4711, "began": 123456}``, with ``"kill": true`` for the latter; `began` is the row's
    figure. 204: the signal was sent; 400: the request is malformed; 403: the process is the server, or one of its
    kernels or their children; 404: there is no such process any more, or it computes on no GPU; 504: it cannot be read.
    """

    def initialize(  # type: ignore[override]  # what each takes is in `extension`
        self,
        kernels: Callable[[], Awaitable[Mapping[int, Notebook]]],
        kinds: Callable[[int], Awaitable[Collection[str]]],
    ) -> None:
        """Take the functions that return this server's kernels by pid, and in which lists a process is."""
        super().initialize(kernels)
        self._kinds = kinds

    async def do(self, pid: int, fields: Mapping[str, Any]) -> int:
        """Send the signal."""
        start = positive_int(fields.get("began"))
        if start is None:
            raise web.HTTPError(400, "began is no time of a process")
        sent = signal.SIGKILL if fields.get("kill") is True else signal.SIGTERM
        kernels = await self._kernels()
        computes = any("C" in kind for kind in await self._kinds(pid))
        if (status := await run_reader(pid, partial(end, pid, start, sent, kernels, computes=computes))) != 204:
            raise ActionRefused(status, f"process {pid} is not ended")
        return status


class IdleHandler(ActionHandler):
    """``GET <base>/tfgpu-magic/idle``: what is known of idle notebooks; a POST with a kernel's pid puts steps off.

    Its body is JSON: ``{"pid": 4711, "kernel": "..."}``. 204: its steps are put off; 400: the request is malformed;
    404: it is no idle kernel of which its owner was told, or was put off before. A GET is a page's that is in sight: it
    tells the owner, and the hours to the next step begin.
    """

    _track_activity = False  # a page that asks now and then must not keep an idle server up

    def initialize(  # type: ignore[override]  # as above
        self, kernels: Callable[[], Awaitable[Mapping[int, Notebook]]], idle: Any
    ) -> None:
        """Take what knows them."""
        super().initialize(kernels)
        self._idle = idle

    @web.authenticated
    @authorized("read")  # type: ignore[untyped-decorator]  # its type is lost on the way
    async def get(self) -> None:
        """Send what is known."""
        self._idle.note_shown()
        self.set_header("Cache-Control", "no-store")
        await self.finish(self._idle.read())

    async def do(self, pid: int, fields: Mapping[str, Any]) -> int:
        """Put the steps off."""
        if not self._idle.put_off(pid, fields.get("kernel")):
            raise ActionRefused(404, f"the notebook with pid {pid} has nothing to put off")
        return 204


def end(pid: int, start: int, number: int, kernels: Mapping[int, Notebook], *, computes: bool = True) -> int:
    """Send a signal to a process of this user's own, if it is the one that began then, and return the answer's status.

    Args:
        pid: its pid.
        start: when it began (`pids.start_time`).
        number: the signal.
        kernels: this server's kernels, by pid.
        computes: whether it is in a list of processes that compute.
    """
    try:
        fd = _descriptor(pid)  # from here on it is known by this, and not by its pid
    except ProcessLookupError:
        return 404
    try:
        # Whichever process has the pid now has had it since before the descriptor was opened, if it began then.
        if start_time(pid) != start or user_of(pid) != os.getuid():
            return 404
        line = ancestors(pid)
        ids = {one.kernel for one in kernels.values()}  # whoever has started it: its command line names its file
        if pid in family() or not kernels.keys().isdisjoint(line) or kernel_of(line)[1] in ids:
            return 403
        if not computes or opens_driver(pid) is False:
            return 404
        if fd is not None:
            signal.pidfd_send_signal(fd, number)
        elif start_time(pid) == start:  # it may have ended while all that was read
            os.kill(pid, number)
        else:
            return 404
    except OSError:
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
