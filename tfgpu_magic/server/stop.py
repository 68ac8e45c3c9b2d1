"""``POST <base>/tfgpu-magic/stop``: ends an isolated call of one of this server's kernels, and nothing else."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from tornado import web

from tfgpu_magic.monitor.pids import ancestors, is_call, user
from tfgpu_magic.server.actions import ActionHandler, read

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class StopHandler(ActionHandler):
    """Interrupts a call as Ctrl-C does, or kills one that ignores interrupts.

    The body is JSON: ``{"pid": 4711}``, with ``"kill": true`` for the latter. How the call ended is shown below its
    cell. 204: the signal was sent; 400: the request is malformed; 404: the pid is no call of these kernels; 504: the
    process cannot be read.
    """

    async def do(self, pid: int, fields: Mapping[str, Any]) -> int:
        """Send the signal."""
        sent = signal.SIGKILL if fields.get("kill") is True else signal.SIGINT
        kernels = set(await self._kernels())
        if not await read(pid, partial(stop, pid, sent, kernels)):
            raise web.HTTPError(404, f"process {pid} is no isolated call of a kernel of this server")
        return 204


def stop(pid: int, number: int, kernels: Collection[int]) -> bool:
    """Send a signal to a call and its children, and tell whether it is a call of one of the kernels.

    Args:
        pid: the call's process.
        number: the signal.
        kernels: the kernels' pids.
    """
    try:
        if user(pid) != os.getuid() or not is_call(pid):
            return False
        if not any(parent in kernels for parent in ancestors(pid)[1:]):
            return False
        os.killpg(pid, number)  # each call leads a process group of its own
    except OSError:
        return False  # it has ended meanwhile
    return True
