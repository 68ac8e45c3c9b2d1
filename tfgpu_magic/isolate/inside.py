"""Whether this process is that of an isolated call: known by the runner, which the calls of functions have."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from tfgpu_magic.isolate import infant
from tfgpu_magic.isolate.infant import Answer
from tfgpu_magic.isolate.order import Order

running = False
"""Whether an isolated call runs in this process."""


def call(connection: socket.socket, order: Order, work: Sequence[memoryview]) -> Answer:
    """Call a function, which can know that it is in a process of its own."""
    global running
    running = True
    return infant.call(connection, order, work)
