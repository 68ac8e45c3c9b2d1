"""Asks what may hang in a driver in a child process, and waits for its answer only so long."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

PATIENCE = 15.0
"""Seconds that a driver may take: where nothing keeps it awake, its start takes one to three for each GPU."""

QUICK = ("-I", "-S")
"""Python's options that skip environment, user site and .pth files, which may run any code and cost most."""

PACKAGES = str(Path(__file__).parents[2])
"""The folder that a child process adds to its search path, to find this package."""

_killed: list[subprocess.Popen[str]] = []
"""Children that were killed and have not died: a call in the driver holds them in uninterruptible sleep."""

_asking: list[subprocess.Popen[str]] = []
"""Children that have not answered yet."""


def nvml_path() -> list[str]:
    """Return the folders that a child process which asks NVML adds to its search path: those of nvidia-ml-py too.

    The working directory is none of them: what a notebook has there must not be run for all of its user's views.
    """
    return [PACKAGES, *(path for path in sys.path if path and PathFinder.find_spec("pynvml", [path]))]


class ChildProcess:
    """A Python process that queries a driver and answers in text; it may run until its time is over.

    A call into a driver can hang for good, even beyond the reach of SIGKILL; then only the child hangs. A child that
    is only slow is not killed earlier: that would end the driver that it has just started, and the next child would be
    as slow. Any thread may start one.

    Args:
        arguments: Python's arguments, such as ``["-c", "print(1)"]``.
        env: its environment; None is this process's.
        cwd: its working directory; None is this process's.
        options: the options of its interpreter; what is to be as in the user's own programs has none.
        patience: seconds until it is killed; None is `PATIENCE`, and infinity leaves that to itself.

    Attributes:
        patience: these seconds.

    Raises:
        OSError: no process can be started.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        options: Sequence[str] = QUICK,
        patience: float | None = None,
    ) -> None:
        self._done = threading.Event()
        self._answer: tuple[str, str, int] | None = None
        self.patience = PATIENCE if patience is None else patience
        # A session of its own: Ctrl-C and Jupyter's interrupt go to a whole process group, and are not for the child.
        self._process = subprocess.Popen(
            [sys.executable, *options, *arguments],
            # A copy also of our own: the original may move in memory while another thread imports TensorFlow.
            env=dict(os.environ if env is None else env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )
        _asking.append(self._process)
        try:
            threading.Thread(target=self._reap, name="tfgpu_magic-child", daemon=True).start()
        except RuntimeError:  # none starts any more: Python ends
            self._reap()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended: it has answered, or was killed."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended, so many seconds at the most, and return whether it has."""
        return self._done.wait(max(0.0, seconds))

    def answer(self, seconds: float) -> tuple[str, str, int]:
        """Wait for its output, its error output and its exit status, and return them. May be called repeatedly.

        Args:
            seconds: how long to wait.

        Raises:
            TimeoutError: it has not answered in that time, or was killed.
        """
        if not self.wait(seconds) or self._answer is None:
            raise TimeoutError
        return self._answer

    def _reap(self) -> None:
        """Read its answer, in a thread of its own: no zombie stays, whether or not a caller waits."""
        process = self._process
        try:
            out, err = process.communicate(timeout=None if self.patience == math.inf else self.patience)
            self._answer = out, err, process.returncode
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                process.kill()
            _killed.append(process)
        finally:
            _asking.remove(process)
            self._done.set()
        if self._answer is None:
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()
            _killed.remove(process)


def any_hangs(patience: float) -> bool:
    """Return whether a killed child still exists; one that can die does so in milliseconds."""
    for process in _killed.copy():  # a thread may remove one meanwhile
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            return True
    return False


@atexit.register
def _kill_all() -> None:
    """Kill the children that have not answered: no thread reads their answers any more."""
    for process in _asking.copy():
        with contextlib.suppress(OSError):
            process.kill()
