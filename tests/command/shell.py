"""Runs `tfgpu` on a simulated machine as a shell does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes import PATIENCE, QUIET
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

TFGPU = (sys.executable, "-m", "tfgpu_magic")
Done = subprocess.CompletedProcess[str]


def run(machine: Machine, *command: str, cwd: Path | None = None, **options: Any) -> Done:
    """Run a command on the machine to its end."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if "input" in options:
        del pipes["stdin"]
    done: Done = machine.run(list(command), cwd=cwd, text=True, timeout=PATIENCE, **{**pipes, "env": QUIET, **options})
    return done


def tfgpu(machine: Machine, *words: str, **options: Any) -> Done:
    """Run `tfgpu` on the machine to its end."""
    return run(machine, *TFGPU, *words, **options)


@dataclass(frozen=True, slots=True)
class Running:
    """A program under `tfgpu run`, and what it said until it was ready."""

    process: subprocess.Popen[str]
    said: str

    @property
    def pid(self) -> int:
        return self.process.pid


@contextlib.contextmanager
def running(
    machine: Machine, *words: str, cwd: Path, env: Mapping[str, str] | None = None, said: str = "ready"
) -> Iterator[Running]:
    """Run `tfgpu run` from the moment when its program prints a word, and end it with the block."""
    log = cwd / f"said-{os.urandom(4).hex()}"
    with log.open("w") as output:
        process = machine.popen(
            [*TFGPU, "run", *words], cwd=cwd, env={**QUIET, **(env or {})}, stdin=subprocess.PIPE, stdout=output,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        until(lambda: said in log.read_text() or process.poll() is not None, seconds=PATIENCE)
        assert process.poll() is None, log.read_text()
        yield Running(process, log.read_text())
    finally:
        process.kill()
        process.communicate()


SIZED = {"TERM": "xterm", "COLUMNS": "", "LINES": ""}
"""The variables of a terminal whose size is its own, and not that of the one that the tests were started in."""


class Terminal:
    """A terminal of 80 by 24, and a process that has it for its own."""

    def __init__(self, machine: Machine, command: tuple[str, ...]) -> None:
        self.said = ""
        self._ours, theirs = pty.openpty()
        self.resize(80, 24)
        self.before = termios.tcgetattr(theirs)
        self.process = machine.popen(
            list(command), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=SIZED
        )
        self._theirs = theirs
        threading.Thread(target=self._read, daemon=True).start()

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def modes(self) -> list[object]:
        return list(termios.tcgetattr(self._theirs))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._theirs)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65536):
                self.said += data.decode(errors="replace")
        os.close(self._ours)


@contextlib.contextmanager
def terminal_of(machine: Machine, *command: str) -> Iterator[Terminal]:
    """Run a command in a terminal, and end it with the block."""
    terminal = Terminal(machine, command)
    try:
        yield terminal
    finally:
        terminal.close()
