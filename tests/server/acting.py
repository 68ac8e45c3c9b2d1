"""Kernels of a server, and what its pages ask it to do to processes."""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.error
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.jupyter import Notebook
from tests.machine.boards import end_collectors, published
from tests.server.streaming import State, rows, streaming
from tfgpu_magic.machine.board.directory import BoardDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.jupyter import Server
    from tfgpu_magic.simgpu import Machine


class Kernel(Notebook):
    """A kernel with a session, or without, and its row in what pages get."""

    def row(self, state: State) -> dict[str, Any]:
        """Return its row; an empty one while there is none."""
        return next((row for row in rows(state) if row.get("kernel") == self.kernel), {})


def row_of(server: Server, wanted: Callable[[State], object]) -> State:
    """Return the first row that is so, once there is one."""

    def row(state: State) -> State | None:
        return next(filter(wanted, rows(state)), None)

    with streaming(server) as stream:
        return row(stream.until(row, 60)) or {}


def leave_unused(machine: Machine, server: Server, rows: Iterable[tuple[int, int]], seconds: float) -> None:
    """Leave the board of a collector that has seen memory held without use for so long, and was killed then.

    Args:
        machine: the server's machine.
        server: it has the board.
        rows: the numbers of GPUs, and the pids of processes there.
        seconds: for how long.
    """
    end_collectors(machine)
    with (
        mock.patch.dict(os.environ, TFGPU_SIMGPU=str(machine.path)),
        BoardDirectory(server.home / "board") as place,
    ):
        published(place, machine, rows, since=time.time() - seconds)


def post(server: Server, action: str, body: object, **options: Any) -> tuple[int, str]:
    """Ask a server to do something to a process; return the answer's status and message."""
    try:
        with server.open(f"tfgpu-magic/{action}", body, **options) as answer:
            return int(answer.status), ""
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode()
        with contextlib.suppress(ValueError):
            return error.code, str(json.loads(said).get("message", ""))
        return error.code, said
