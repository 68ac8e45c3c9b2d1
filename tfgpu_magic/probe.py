"""A process of our own that asks a driver something, and is never waited for beyond one's patience."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

PATIENCE = 15.0
"""Seconds that a driver may take: to start it takes one to three for each GPU where nothing keeps it awake."""

CALLS = "# tfgpu_magic's isolated calls"
"""What stands in the command line of the processes that run isolated calls, and of those that these are forked from."""

_killed: list[subprocess.Popen[str]] = []
"""Children that were killed and have not died: a call in the driver holds them in uninterruptible sleep."""

_asking: list[subprocess.Popen[str]] = []
"""Children that have not answered yet."""


class Probe:
    """A Python process that asks and answers in text, and is left alone until it does or `PATIENCE` is over.

    A call into a driver can hang for good, even beyond the reach of SIGKILL; then only the child hangs. One that is
    slow is not killed for that: it would end the driver that it has just started, and the next would be as slow. Any
    thread may have children.

    Args:
        arguments: Python's, such as ``["-c", "print(1)"]``.
        env: its environment; None is ours.

    Raises:
        OSError: no process can be started.
    """

    def __init__(self, arguments: list[str], *, env: Mapping[str, str] | None = None) -> None:
        self._begun = time.monotonic()
        self._ended: float | None = None
        self._done = threading.Event()
        self._answer: tuple[str, str, int] | None = None
        # -I and -S skip environment, user site and .pth files, which may run any code and cost more than all the rest.
        # A session of its own: Ctrl-C and Jupyter's interrupt go to a whole process group, and are not for the child.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", *arguments],
            # Named also where it is ours: the process's own may move in memory while another thread imports TensorFlow.
            env=dict(os.environ if env is None else env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        )
        _asking.append(self._process)
        threading.Thread(target=self._attend, name="tfgpu_magic-child", daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether there is nothing to wait for any more: it has answered, or was killed."""
        return self._done.is_set()

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._begun

    @property
    def took(self) -> float:
        """Seconds that it took, or has taken so far."""
        return (self._ended or time.monotonic()) - self._begun

    def answer(self, seconds: float) -> tuple[str, str, int]:
        """Wait for what it prints, what it complains, and its exit status. It may be asked again.

        Args:
            seconds: how long to wait.

        Raises:
            TimeoutError: it has not answered in that time, or will not any more.
        """
        if not self._done.wait(max(0.0, seconds)) or self._answer is None:
            raise TimeoutError
        return self._answer

    def _attend(self) -> None:
        """Hear its answer; a thread does, so that no zombie stays whoever waits for it."""
        process = self._process
        try:
            out, err = process.communicate(timeout=PATIENCE)
            self._answer = out, err, process.returncode
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                process.kill()
            _killed.append(process)
        finally:
            self._ended = time.monotonic()
            _asking.remove(process)
            self._done.set()
        if self._answer is None:
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()
            _killed.remove(process)


def any_hangs(patience: float) -> bool:
    """Tell whether a killed child is still there; one that can die does so in milliseconds."""
    for process in _killed.copy():  # a thread may take one out meanwhile
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            return True
    return False


@atexit.register
def _leave() -> None:
    """End those that still ask: nobody hears them any more."""
    for process in _asking.copy():
        with contextlib.suppress(OSError):
            process.kill()
