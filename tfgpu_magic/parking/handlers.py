"""``POST <base>/tfgpu-magic/park``: has a kernel of this server's park itself, or brings it back.

A kernel is asked, since only it knows whether it may be parked. To bring it back nobody has to ask it: it waits in the
parker until there is room, as long as this server runs and nobody calls that off by parking it again.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.owners.pids import ancestors, began
from tfgpu_magic.parking import client
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.answers import reasons
from tfgpu_magic.parking.inside import asking
from tfgpu_magic.parking.messages import Outcome
from tfgpu_magic.server.actions import ActionHandler, within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tfgpu_magic.model.rows import Notebook

    Kernels = Callable[[], Awaitable[Mapping[int, Notebook]]]

PARK_TIMEOUT = asking.BEGIN_TIMEOUT + asking.ANSWER_TIMEOUT
"""Seconds that the answer to a park may take: by then it is on its way, or its refusal is known."""
RETURN_TIMEOUT = 5.0
"""Seconds that the answer to a return may take; one that waits for room goes on, and the panel shows how it gets on."""

WAITED_FOR = "A cell, a timer or another notebook waits for it, and only that can be interrupted."
"""Why one that waits to come back is not told to stay parked: nobody has asked this server to bring it back."""


class Returns:
    """The kernels that are to come back as soon as there is room. Thread-safe."""

    def __init__(self) -> None:
        self._wanted: dict[int, threading.Event] = {}
        self._lock = threading.Lock()

    def bring_back(self, pid: int) -> Outcome:
        """Bring a kernel back; wait until there is room for it, or that is called off."""
        with self._lock:
            if pid in self._wanted:
                return Outcome(entry=client.parked(pid))
            off = self._wanted[pid] = threading.Event()
        try:
            return client.unpark(pid, wanted=lambda: not off.is_set())
        finally:
            with self._lock:
                self._wanted.pop(pid, None)

    def call_off(self, pid: int) -> bool:
        """Have a kernel stay parked that waits to come back; tell whether one waits."""
        with self._lock:
            off = self._wanted.get(pid)
        if off is not None:
            off.set()
        return off is not None

    def close(self) -> None:
        """Call everything off."""
        for pid in tuple(self._wanted):
            self.call_off(pid)


def handlers(kernels: Kernels) -> tuple[list[tuple[object, ...]], Callable[[], None]]:
    """Return the handler with its path and arguments, and what is called at the server's end."""
    returns = Returns()
    return [(r"/tfgpu-magic/park", ParkHandler, {"kernels": kernels, "returns": returns})], returns.close


class ParkHandler(ActionHandler):
    """Parks a kernel, or brings it back.

    The body is JSON: ``{"kernel": "...", "pid": 4711}``, with ``"back": true`` for the latter. 204: done; 202: it goes
    on; 400: the request is malformed; 404: it is no kernel of this server, or another process by now; 409: it cannot be
    done, and the message says why; 503: the parker does not answer.
    """

    def initialize(  # type: ignore[override]  # what it takes is in `handlers`
        self, kernels: Kernels, returns: Returns
    ) -> None:
        """Take the function that returns this server's kernels by pid, and those that are to come back."""
        super().initialize(kernels)
        self._returns = returns

    async def do(self, pid: int, fields: Mapping[str, Any]) -> int:
        """Park it, or bring it back."""
        kernel = fields.get("kernel")
        if not isinstance(kernel, str):
            return self._say(400, "kernel is no kernel")
        above = ancestors(pid)  # the server has started the kernel, or a wrapper that did
        known = next((one for at, one in (await self._kernels()).items() if one.kernel == kernel and at in above), None)
        if known is None or began(pid) is None:
            return self._say(404, f"process {pid} is no kernel of this server")
        if fields.get("back") is True:
            return await self._done(partial(self._returns.bring_back, pid), RETURN_TIMEOUT)
        if self._returns.call_off(pid):
            return 204
        entry = client.parked(pid)
        if entry is not None and entry.wanted:
            return self._say(409, WAITED_FOR)
        if known.state == "busy":
            return self._say(409, reasons((why.BUSY(),)))
        return await self._done(partial(asking.park, pid), PARK_TIMEOUT)

    async def _done(self, do: Callable[[], Outcome], timeout: float) -> int:
        """Do something on a thread, and return the answer's status."""
        try:
            outcome = await within(timeout, do)
        except asyncio.TimeoutError:
            return 202
        except MonitorError as error:
            return self._say(503, str(error))
        return 204 if outcome.done else self._say(409, reasons(outcome.refusals))

    def _say(self, status: int, message: str) -> int:
        """Write a message as it is, and return the status: an `HTTPError` would double its per cent signs."""
        self.write({"message": message})
        return status
