"""Kernels of a server, and what its pages ask it to do to processes."""

from __future__ import annotations

import contextlib
import json
import urllib.error
from typing import TYPE_CHECKING, Any

from tests.jupyter import Notebook
from tests.server.streaming import State, rows, streaming

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.jupyter import Server


class Kernel(Notebook):
    """A kernel with a session, or without, and its row in what pages get."""

    def row(self, state: State) -> dict[str, Any] | None:
        return next((row for row in rows(state) if row.get("kernel") == self.kernel), None)


def row_of(server: Server, wanted: Callable[[State], object]) -> State:
    """Return the first row that is so, once there is one."""

    def row(state: State) -> State | None:
        return next(filter(wanted, rows(state)), None)

    with streaming(server) as stream:
        return row(stream.until(row, 60)) or {}


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
