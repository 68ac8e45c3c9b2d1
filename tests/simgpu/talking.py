"""Programs on a simulated machine that are told, line by line, what to do, and can be stopped and killed meanwhile."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.processes import QUIET
from tests.slack import SLACK
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0 * SLACK
"""Seconds in which a program must answer."""

MOMENT = 0.3
"""Seconds in which what waits does not answer."""

_CODE = "from tests.simgpu.checkpoint_on_machine import listen; listen()"


class Talker:
    """A program that evaluates expressions, with the names of `checkpoint_on_machine`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = process.pid

    def say(self, expression: str) -> None:
        """Have it evaluate an expression, and do not wait for that."""
        assert self.process.stdin is not None
        self.process.stdin.write(expression.encode() + b"\n")
        self.process.stdin.flush()

    def answers(self, within: float) -> bool:
        """Tell whether it answers, or ends, within so many seconds."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], within)[0])

    def hear(self) -> Any:
        """Return what the last expression's value is."""
        assert self.process.stdout is not None
        assert self.answers(PATIENCE), "no answer"
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.process.wait()}"
        return json.loads(line)

    def ask(self, expression: str) -> Any:
        """Have it evaluate an expression, and return its value."""
        self.say(expression)
        return self.hear()

    def stop(self) -> None:
        """Stop it, and wait until all of its threads are: a signal takes a moment to reach each."""
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: {_state(task) for task in Path(f"/proc/{self.pid}/task").iterdir()} == {"T"}, every=0.01)

    def end(self, number: signal.Signals | None = None) -> int:
        """Send it a signal, if any, and return its status once it has ended."""
        if number is not None:
            os.kill(self.pid, number)
        return self.process.wait(PATIENCE)


def _state(task: Path) -> str:
    """Return the letter of a thread's state. Source: proc_pid_stat(5)."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def talker(machine: Machine, *first: str, **variables: str) -> Iterator[Talker]:
    """Start a program, and have it evaluate expressions; it is killed at the end of the block.

    Args:
        machine: where it runs.
        first: expressions.
        variables: of its environment.
    """
    command, pipe = [sys.executable, "-c", _CODE], subprocess.PIPE
    with machine.popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, env=QUIET | variables) as process:
        try:
            told = Talker(process)
            for expression in first:
                told.ask(expression)
            yield told
        finally:
            process.kill()
