"""Asks another kernel of this user's to park itself, by a silent request that it answers between two cells.

Only a process itself knows what of it may be in CUDA, so nobody parks a kernel from outside.
Source: Jupyter's messaging protocol, "Execute"; ipykernel's command line, which names the connection file.
"""

from __future__ import annotations

import ast
import contextlib
import os
import queue
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgpu_magic.monitor.pids import began
from tfgpu_magic.parking import client
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.messages import Outcome, reply
from tfgpu_magic.parking.states import UNSETTLED, Phase

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

PATIENCE = 5.0
"""Seconds in which a kernel begins: one that runs no cell does so at once."""

_POLL = 0.5  # seconds between two looks whether it has begun, or has ended
_EXPRESSION = '__import__("tfgpu_magic.parking.within").parking.within.park(%r)'


def park(pid: int, start: int, *, patience: float = PATIENCE) -> Outcome:
    """Ask a kernel to park itself, and wait for what comes of it.

    Args:
        pid: the kernel.
        start: when it began (`pids.began`).
        patience: seconds in which it begins; later it does not.
    """
    if began(pid) != start:
        return Outcome(refusals=(why.Ended(),))
    entry = client.parked(pid)
    if entry is not None and entry.phase is Phase.PARKED:
        return Outcome(entry=entry)  # a request would bring it back
    path = connection_file(pid)
    try:
        from jupyter_client.blocking.client import BlockingKernelClient  # every kernel has it, and no terminal needs it
    except ImportError:
        path = None
    if path is None:
        return Outcome(refusals=(why.NotAsked(),))
    kernel = BlockingKernelClient(connection_file=str(path))
    kernel.load_connection_file()
    kernel.start_channels(iopub=False, stdin=False, hb=False, control=False)
    try:
        return _conversation(kernel, pid, start, time.time() + patience)
    finally:
        kernel.stop_channels()


def connection_file(pid: int) -> Path | None:
    """Return the connection file of a kernel of this user's; None where it is none, or names none that is there."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():  # noqa: PTH116
            return None
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
    except OSError:
        return None
    paths = (Path(word.rpartition("=")[2]) for word in words if word.endswith(".json"))
    return next((path for path in paths if path.is_absolute() and path.is_file()), None)


def _conversation(kernel: BlockingKernelClient, pid: int, start: int, deadline: float) -> Outcome:
    request = kernel.execute(
        "",
        silent=True,
        store_history=False,
        allow_stdin=False,
        stop_on_error=False,
        user_expressions={"parked": _EXPRESSION % deadline},
    )
    while began(pid) == start:
        with contextlib.suppress(queue.Empty):
            answer = kernel.get_shell_msg(timeout=_POLL)
            if answer["parent_header"].get("msg_id") == request:
                return _outcome(answer["content"].get("user_expressions", {}).get("parked", {}))
        entry = client.parked(pid)
        if time.time() > deadline + PATIENCE and (entry is None or entry.phase not in UNSETTLED):
            return Outcome(entry=entry, refusals=(why.Busy(),))
    return Outcome(refusals=(why.Ended(),))


def _outcome(value: dict[str, Any]) -> Outcome:
    """Read the value of the expression; a kernel with another version of this package may have none."""
    try:
        said = reply(ast.literal_eval(value["data"]["text/plain"]).encode())
    except (KeyError, ValueError, SyntaxError, AttributeError):
        said = None
    return said if isinstance(said, Outcome) else Outcome(refusals=(why.NotAsked(),))
