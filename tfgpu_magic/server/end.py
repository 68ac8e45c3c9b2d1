"""``POST <base>/tfgpu-magic/end``: ends a process of the user's own that holds memory and no server here knows.

A kernel of this server is restarted and shut down by Jupyter's own requests, and an isolated call is ended by `stop`.
Between the question and the answer a process may end and its pid be given to another one: so a request names when the
process began, and is for no other.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from tornado import web

from tfgpu_magic.monitor.pids import ancestors, began, family, opens_driver, user
from tfgpu_magic.parking import client
from tfgpu_magic.server.actions import ActionHandler, number, read

if TYPE_CHECKING:
    from collections.abc import Mapping


class EndHandler(ActionHandler):
    """Asks a process to end, or kills one that does not.

    The body is JSON: ``{"pid": 4711, "began": 123456}``, with ``"kill": true`` for the latter; `began` is the row's
    figure. 204: the signal was sent; 400: the request is malformed; 403: the process is the server, or one of its
    kernels or their children; 404: there is no such process any more, or it holds no GPU; 409: it was parked once, and
    to end it so may stop the machine; 504: it cannot be read.
    """

    async def do(self, pid: int, fields: Mapping[str, Any]) -> int:
        """Send the signal."""
        start = number(fields.get("began"))
        if start is None:
            raise web.HTTPError(400, "began is no time of a process")
        sent = signal.SIGKILL if fields.get("kill") is True else signal.SIGTERM
        kernels = set(await self._kernels())
        if (status := await read(pid, partial(end, pid, start, sent, kernels))) != 204:
            raise web.HTTPError(status, f"process {pid} is not ended")
        return status


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
        if began(pid) != start or user(pid) != os.getuid() or not _uses_gpu(pid):
            return 404
        if pid in family() or not kernels.isdisjoint(ancestors(pid)):
            return 403
        _refuse_to_stop_machine(pid)  # most programs end at once by either signal, and CUDA knows nothing of it
        if fd is not None:
            signal.pidfd_send_signal(fd, number)
        elif began(pid) == start:  # it may have ended while all that was read
            os.kill(pid, number)
        else:
            return 404
    except OSError:
        return 404  # it has ended meanwhile
    finally:
        if fd is not None:
            os.close(fd)
    return 204


def _uses_gpu(pid: int) -> bool:
    """Tell whether a process has the driver open, or may have; one that is parked need not."""
    return opens_driver(pid) is not False or client.parked(pid) is not None


def _refuse_to_stop_machine(pid: int) -> None:
    """Refuse to kill a process where that may stop the machine.

    Raises:
        web.HTTPError: 409, it was parked once, under the driver's open kernel module.
    """
    if client.must_end_itself(pid):
        raise web.HTTPError(
            409,
            "It was parked once, and under the driver's open kernel module to kill such a process has hung whole "
            "hosts. Nothing was done: have it end by itself.",
        )


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
