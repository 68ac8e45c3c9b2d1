"""Holders of memory beside the program under test: real processes, or rows that only look like one."""

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.simgpu.build import NEIGHBOUR, libraries
from tfgpu_magic.simgpu.native import MachineState
from tfgpu_magic.simgpu.spec import size_of

NOBODY = 65534


class Holder:
    """A holder of memory on one GPU until stopped; as a context manager, until its block ends."""

    pid: int

    def resize(self, held: int | str) -> None:
        """Hold this much from now on: bytes, or a size such as ``12GiB``; the context is a part of it."""
        raise NotImplementedError

    def stop(self) -> None:
        """Free all memory, and end. A second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> "Holder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Row(Holder):
    """A row without a process of its own."""

    def __init__(self, state: MachineState, pid: int, device: int, held: int, kind: str) -> None:
        self.pid = pid
        self._state = state
        self._row = state.add_row(pid, device, held, kind)

    def resize(self, held: int | str) -> None:
        """Hold this much from now on."""
        self._state.change_row(self._row, size_of(held))

    def stop(self) -> None:
        """Remove the row."""
        self._state.change_row(self._row, 0)


class Neighbour(Holder):
    """A real process that holds memory through the simulated driver, and ends with the process that started it.

    Attributes:
        pid: its process id.
        name: its command line.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        device: int,
        held: int,
        name: str,
        *,
        user: int | None = None,
        cgroup: Path | None = None,
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            shlex.split(name) or [NEIGHBOUR],
            executable=libraries() / NEIGHBOUR,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the program under test
        )
        self.pid = self._process.pid
        try:
            if cgroup is not None:
                (cgroup / "cgroup.procs").write_text(str(self.pid))
            self._ask(f"start {device} {held} {-1 if user is None else user}")
        except BaseException:
            self.stop()
            raise

    def resize(self, held: int | str) -> None:
        """Hold this much from now on; when there is no room it keeps what it has.

        Raises:
            SimulatorError: the GPU is full, it is less than a context takes, or the process is gone.
        """
        self._ask(f"resize {size_of(held)}")

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in self._streams():
            stream.close()

    def _streams(self) -> tuple[IO[str], IO[str]]:
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("both were asked for")
        return self._process.stdin, self._process.stdout

    def _ask(self, line: str) -> None:
        to, answers = self._streams()
        try:
            print(line, file=to, flush=True)
            answer = answers.readline().strip()
        except (BrokenPipeError, ValueError):
            answer = ""
        if answer != "ok":
            raise SimulatorError(f"the neighbour {self.name!r} cannot {line}: {answer or 'it is gone'}.")
