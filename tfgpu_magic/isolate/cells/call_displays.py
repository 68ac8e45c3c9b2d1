"""Runs a notebook's call in its process, and sends what it displays to the kernel, as `shell` does for a cell."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from types import ModuleType

from tfgpu_magic.isolate.cells.shell import make
from tfgpu_magic.isolate.process import worker
from tfgpu_magic.isolate.process.result import Result


def call(connection: socket.socket, work: Sequence[memoryview]) -> Result:
    """Call a function, as the runner of calls from a process where IPython runs."""
    path = list(sys.path)
    shell = make(connection, ModuleType("tfgpu_magic_call"))  # the call's own names are not IPython's to fill
    sys.path[:] = path
    outcome = worker.call(connection, work)
    shell.events.trigger("post_execute")  # shows figures that are left open, as the end of a cell does
    return outcome
