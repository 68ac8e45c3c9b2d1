"""Whether this process is a worker process, and how it asks its caller: `worker` sets it, other code checks it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

running = False
"""Whether this process is the worker process of an isolated call."""

connection: socket.socket | None = None
"""The socket on which its caller answers; None in any other process, also in one that was forked from it."""

ASKING = threading.Lock()
"""Held by the thread that waits for an answer of the caller."""


def _forget() -> None:
    global connection
    connection = None


os.register_at_fork(after_in_child=_forget)
