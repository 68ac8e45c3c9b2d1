"""In the process of a call that a notebook makes: what it displays is sent home, as an isolated cell's displays are."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from types import ModuleType

from tfgpu_magic.isolate.cells.shell import make
from tfgpu_magic.isolate.process import worker
from tfgpu_magic.isolate.process.order import Order
from tfgpu_magic.isolate.process.result import Result


def call(connection: socket.socket, order: Order, work: Sequence[memoryview]) -> Result:
    """Call a function: the runner of calls that are made where IPython runs."""
    path = list(sys.path)
    shell = make(connection, ModuleType("tfgpu_magic_call"))  # the call's own names are not IPython's to fill
    sys.path[:] = path
    outcome = worker.call(connection, order, work)
    shell.events.trigger("post_execute")  # shows figures that are left open, as the end of a cell does
    return outcome
