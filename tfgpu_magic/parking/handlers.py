"""``POST <base>/tfgpu-magic/park``: has a kernel of this server's park itself, or brings it back.

A kernel is asked, since only it knows whether it may be parked, and only it brings its state back: it waits until there
is room, and nobody calls that off by parking it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.rows import Notebook
from tfgpu_magic.model.said import say
from tfgpu_magic.monitor.owners.pids import ancestors, began
from tfgpu_magic.parking import ask_kernel, facts, reported
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.answers import reasons
from tfgpu_magic.parking.messages import ParkOutcome
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.server.actions import ActionHandler, ActionRefused, within

PARK_TIMEOUT = ask_kernel.BEGIN_TIMEOUT + ask_kernel.ANSWER_TIMEOUT  # seconds: then it goes, or has said why not
RETURN_TIMEOUT = 5.0  # seconds: one that waits for room goes on, and the panel shows how it gets on

WAITED_FOR = say("A cell waits for it, or what a page has asked: interrupt its kernel.")
"""Why one that waits to come back is not told to stay parked: it hears nothing meanwhile."""


def handlers(kernels: Callable[[], Awaitable[Mapping[int, Notebook]]]) -> list[tuple[object, ...]]:
    """Return the handler with its path and arguments."""
    return [(r"/tfgpu-magic/park", ParkHandler, {"kernels": kernels})]


class ParkHandler(ActionHandler):
    """``POST <base>/tfgpu-magic/park``: parks a kernel of this server, or brings it back.

    The body is JSON: ``{"kernel": "...", "pid": 4711}``, with ``"back": true`` for the latter. 204: done; 202: it goes
    on; 400: the request is malformed; 404: it is no kernel of this server, or another process by now; 409: it cannot be
    done, and the message says why; 503: the kernel cannot be asked.
    """

    async def do(self, pid: int, fields: Mapping[str, Any]) -> int:
        """Park it, or bring it back."""
        kernel = fields.get("kernel")
        if not isinstance(kernel, str):
            raise ActionRefused(400, "kernel is no kernel")
        above = ancestors(pid)  # the server has started the kernel, or a wrapper that did
        known = next((one for at, one in (await self._kernels()).items() if one.kernel == kernel and at in above), None)
        if known is None or began(pid) is None:
            raise ActionRefused(404, say("process {pid} is no kernel of this server", pid=pid))
        if fields.get("back") is True:
            return await self._asked(pid, "back", RETURN_TIMEOUT)
        entry = reported.parked(pid)
        waits = entry is not None and entry.wanted
        if known.state == "busy":
            raise ActionRefused(409, WAITED_FOR if waits else reasons((why.BUSY(),)))
        return await (self._asked(pid, "stay", ask_kernel.BEGIN_TIMEOUT) if waits else self._asked(pid, "park"))

    async def _asked(self, pid: int, what: ask_kernel.What, seconds: float = math.inf) -> int:
        """Ask a kernel, and return the answer's status."""
        try:
            outcome = await asked(pid, what, seconds)
        except MonitorError as error:
            raise ActionRefused(503, str(error)) from error
        if outcome is not None and not outcome.done:
            raise ActionRefused(409, reasons(outcome.refusals))
        return 202 if outcome is None else 204


async def asked(pid: int, what: ask_kernel.What, seconds: float = math.inf) -> ParkOutcome | None:
    """Ask a kernel on a thread, as `ask_kernel.ask`; None where it goes on."""
    with contextlib.suppress(asyncio.TimeoutError):
        return await within(PARK_TIMEOUT, partial(ask_kernel.ask, pid, what, seconds))
    return None


async def park(pid: int) -> str:
    """Have an idle kernel park itself, and return why it does not; empty where it does, or where it goes on."""
    try:
        outcome = await asked(pid, "park")
    except MonitorError as error:
        return str(error)
    return "" if outcome is None else reasons(outcome.refusals)


def parks_first(pid: int) -> bool | None:
    """Tell whether a process has to park itself before it may be killed (`inside.ending`); None of one never parked."""
    entry = reported.parked(pid)
    if entry is None:
        return None
    was_away = entry.returns > 0 or entry.phase not in (Phase.LOCKING, Phase.CHECKPOINTING)
    return entry.phase is not Phase.PARKED and was_away and facts.open_module() is not False
