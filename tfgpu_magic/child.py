"""A process of our own that asks a driver something, and is never waited for beyond its time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

_hung: list[subprocess.Popen[str]] = []
"""Children that were killed and have not died: a call in the driver holds them in uninterruptible sleep."""


class Child:
    """A Python process that asks and answers in text. Leaving the context ends it, and never waits for that.

    A call into a driver can hang for good, even beyond the reach of SIGKILL; then only the child hangs. Any thread may
    have children.

    Args:
        arguments: Python's, such as ``["-c", "print(1)"]``.
        seconds: how long from now until there is an answer, or none.
        env: its environment; None is ours.

    Raises:
        OSError: no process can be started.
    """

    def __init__(self, arguments: list[str], seconds: float, *, env: Mapping[str, str] | None = None) -> None:
        self._deadline = time.monotonic() + seconds
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

    def answer(self) -> tuple[str, str, int]:
        """Wait for what it prints, what it complains, and its exit status.

        Raises:
            TimeoutError: its time is over.
        """
        try:
            out, err = self._process.communicate(timeout=max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        return out, err, self._process.returncode

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:  # a KeyboardInterrupt passes here too
        if self._process.returncode is None:
            _leave(self._process)


def any_hangs(patience: float) -> bool:
    """Tell whether a killed child is still there; one that can die does so in milliseconds."""
    for process in _hung.copy():  # a thread may take one out meanwhile
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            return True
    return False


def _leave(process: subprocess.Popen[str]) -> None:
    """Kill and don't wait: a thread does, so that no zombie stays, and a hanging one is remembered."""
    with contextlib.suppress(OSError):
        process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    _hung.append(process)
    threading.Thread(target=_reap, args=(process,), name="tfgpu_magic-reaper", daemon=True).start()


def _reap(process: subprocess.Popen[str]) -> None:
    process.wait()
    _hung.remove(process)
