"""The driver worker of this process: another process that makes the driver's calls for it, each for a limited time.

It is a child of the process whose state it moves, as long as that is away, or on its way. When a call hangs it is given
up; until it has ended it may still do what it was told.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from typing import Any

from tfgpu_magic.monitor.board.starting import environment
from tfgpu_magic.parking.driver import START_TIMEOUT, DriverError
from tfgpu_magic.parking.states import CudaState
from tfgpu_magic.probe import PACKAGES

CODE = "import sys; sys.path += sys.argv[1:]; from tfgpu_magic.parking.driver import main; main()"
"""What a worker runs."""
KILL_TIMEOUT = 2.0  # seconds in which a killed worker ends, unless the driver holds it in uninterruptible sleep
ALARM_LATER = 2.0  # seconds after which it ends by itself when it should have been given up: its kernel is stopped


class Died(Exception):
    """A worker that ended in a call, or was given up, or cannot be started: what became of the call is not known."""

    def __init__(self, call: str, *, hung: bool = False) -> None:
        super().__init__(f"{call}: no answer")
        self.call, self.hung = call, hung  # whether it did not answer in time


TROUBLES = (DriverError, Died)
"""What a call to the driver may end in: the driver declines it; it hangs, or the worker has ended."""


class DriverWorker:
    """One worker, which has started the driver, or has raised one of the `TROUBLES`."""

    def __init__(self) -> None:
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", CODE, PACKAGES],
                env=environment(simulated="TFGPU_SIMGPU" in os.environ),
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise Died("start") from error
        assert self._process.stdin is not None  # noqa: S101  # pipes were asked for
        assert self._process.stdout is not None  # noqa: S101
        self._orders, self._answers = self._process.stdin, self._process.stdout
        self._idle = False
        self._answer("cuInit", START_TIMEOUT)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it lives, and waits for an order."""
        return self._idle and not self.ended

    @property
    def ended(self) -> bool:
        """Whether its process has ended: one that cannot be killed may still do what it was told."""
        return self._process.poll() is not None

    def call(self, call: str, *arguments: object, seconds: float) -> Any:
        """Have it make one call, and return the answer; what may be raised are `TROUBLES`."""
        self._idle = False
        order = {"call": call, "arguments": arguments, "seconds": seconds + ALARM_LATER}
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
        except OSError:
            self.give_up()
            raise Died(call) from None
        return self._answer(call, seconds)

    def state(self, pid: int, *, seconds: float) -> CudaState:
        """Return a process's state."""
        return CudaState(self.call("state", pid, seconds=seconds))

    def give_up(self) -> None:
        """Kill it, and wait a moment for its end."""
        self._process.kill()
        self._idle = False
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_TIMEOUT)
        self._orders.close()
        self._answers.close()

    def end(self) -> None:
        """Have it end, which frees what it has taken."""
        if self._idle:
            self._orders.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_TIMEOUT)
        self.give_up()

    def _answer(self, call: str, seconds: float) -> Any:
        """Wait for an answer. Whatever keeps it from being read, the worker is given up."""
        pipe, line, end = select.poll(), b"", time.monotonic() + seconds
        pipe.register(self._answers, select.POLLIN)
        with contextlib.ExitStack() as otherwise:
            otherwise.callback(self.give_up)
            while not line.endswith(b"\n"):  # there is one answer to each order
                if not pipe.poll(1000 * max(0.0, end - time.monotonic())):
                    raise Died(call, hung=True)
                if not (new := os.read(self._answers.fileno(), 2**16)):  # it may end in the middle of a line
                    raise Died(call)
                line += new
            otherwise.pop_all()
        answer = json.loads(line)
        self._idle = True
        if "code" in answer:
            raise DriverError(answer["call"], answer["code"])
        return answer["answer"]
