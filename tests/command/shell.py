"""Runs `tfgpu` on a simulated machine as a shell does."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
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
