"""A process on the simulated machine that runs the tests' functions one after the other: its fork server stays warm."""

from __future__ import annotations

import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from tests.processes import PATIENCE, QUIET
from tfgpu_magic.simgpu import Machine

T = TypeVar("T")


class Resident:
    """The process, and the machine that it is on."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        code = f"from tests.isolate.resident import serve; serve({theirs.fileno()})"
        with theirs:
            self._process: subprocess.Popen[bytes] = machine.popen(
                [sys.executable, "-c", code], env=QUIET, pass_fds=[theirs.fileno()]
            )

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call a module's function there, and return what it returns."""
        self._connection.send((function, args))
        if not self._connection.poll(PATIENCE):
            raise TimeoutError(f"{function.__name__} did not answer within {PATIENCE} s")
        answer, trouble = self._connection.recv()
        if trouble:
            raise AssertionError(f"in the process of {function.__name__}:\n{trouble}")
        value: T = answer
        return value

    def close(self) -> None:
        """End it."""
        self._connection.close()
        assert self._process.wait(30) == 0


def serve(descriptor: int) -> None:
    """Call what is asked for, until the connection is closed."""
    connection = Connection(descriptor)
    while True:
        try:
            function, args = connection.recv()
        except EOFError:
            return
        try:
            connection.send((function(*args), None))
        except BaseException:  # whatever it is, the test must be told
            connection.send((None, traceback.format_exc()))
