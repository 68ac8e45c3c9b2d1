"""The kernel's side of the nursery: starts it, warms it, and has it start and signal the processes of calls."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass

from tfgpu_magic.errors import WorkerDied
from tfgpu_magic.isolate import ending, wire
from tfgpu_magic.isolate.nursery import FIGURE, ORDER, READY

EARLY = (
    "KERAS_BACKEND", "KERAS_HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS", "TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_VMODULE", "TF_ENABLE_ONEDNN_OPTS",
    "TF_USE_LEGACY_KERAS",
)  # fmt: skip
"""Variables that count when TensorFlow is imported: when one has changed, it must be imported anew."""

_PIPE = 2**20  # bytes that a process may print while nobody listens


@dataclass(slots=True, eq=False)
class Process:
    """The process of one call. All descriptors are this object's own, and `close` closes them.

    Attributes:
        connection: where its messages come and go.
        out: what it prints, Python or C.
        err: what it prints to standard error.
        told: where its pid comes, and its exit status when it has ended and its descendants have.
        pid: its process id; None before it is told.
        status: its exit status, negative for a signal; None while it lives.
    """

    connection: socket.socket
    out: int
    err: int
    told: int
    _nursery: Nursery
    pid: int | None = None
    status: int | None = None

    def hear(self) -> None:
        """Read what is told: first the pid, then the exit status. Waits for it.

        Raises:
            OSError: the process could not be started.
            WorkerDied: the nursery has died, and all its calls with it.
        """
        figure = os.read(self.told, FIGURE.size)
        if not figure:
            raise WorkerDied(
                f"The process that starts isolated calls has died ({self._nursery.end()}), and this call with it."
            )
        (number,) = FIGURE.unpack(figure)
        if self.pid is not None:
            self.status = number
        elif number < 0:
            raise OSError(-number, f"No process can be started for the call: {os.strerror(-number)}")
        else:
            self.pid = number

    def signal(self, number: int) -> None:
        """Send a signal to it and all that it has started; to one that has ended already, nothing happens."""
        if self.pid is not None and self.status is None:
            self._nursery.signal(self.pid, number)

    def close(self) -> None:
        """Let go of it, once; one that lives is killed."""
        self.signal(signal.SIGKILL)
        self.connection.close()
        for descriptor in (self.out, self.err, self.told):
            os.close(descriptor)
        self._nursery.over()


class Nursery:
    """One nursery. It ends with this process, however that ends, or when it is retired and its last call is over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._retired = False
        self.owner = os.getpid()
        self.early = early()
        self.warmed: float | None = None
        self._control, theirs = wire.pair()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from tfgpu_magic.isolate import nursery; "
            f"nursery.main({theirs.fileno()}, {os.getpid()})"
        )
        with theirs:
            # A session of its own: signals of the terminal and of Jupyter go to whole groups, and it must live to
            # end its calls when the kernel's group is killed.
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def lives(self) -> bool:
        """Tell whether calls can be started: it is this process's, and has not ended."""
        return self.owner == os.getpid() and self._process.poll() is None

    def is_warm(self, seconds: float = 0.0) -> bool:
        """Wait until everything is imported, at most so long; tell whether it is."""
        if self.warmed is None and select.select([self._control], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                said = self._control.recv(64, socket.MSG_DONTWAIT)
                if said.startswith(READY):
                    self.warmed = FIGURE.unpack(said[len(READY) :])[0] / 1000
        return self.warmed is not None

    def start(self) -> Process:
        """Have a process started. Where it is not warm yet, that takes until it is: `Process.hear` waits.

        Raises:
            OSError: there are no descriptors left, or it has ended.
        """
        ours, theirs = wire.pair()
        ends: list[int] = []
        try:
            for _ in range(3):
                ends += os.pipe2(os.O_CLOEXEC)
            out, their_out, err, their_err, told, their_told = ends
            for pipe in (out, err):
                with contextlib.suppress(OSError):  # unprivileged users have a limit
                    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
            with self._lock:
                handed = [theirs.fileno(), their_out, their_err, their_told]
                socket.send_fds(self._control, [ORDER.pack(0, 0)], handed)
                self._calls += 1
        except BaseException:
            for descriptor in ends:
                os.close(descriptor)
            ours.close()
            raise
        finally:
            theirs.close()
        for descriptor in (their_out, their_err, their_told):
            os.close(descriptor)
        return Process(ours, out, err, told, self)

    def signal(self, pid: int, number: int) -> None:
        """Signal a call's process group. The nursery does it, because only it knows that the number is the call's."""
        with self._lock, contextlib.suppress(OSError):
            self._control.send(ORDER.pack(pid, number))

    def over(self) -> None:
        """Know that a call is over."""
        with self._lock:
            self._calls -= 1
            self._close_if_idle()

    def retire(self) -> None:
        """Start no more calls."""
        with self._lock:
            self._retired = True
            self._close_if_idle()

    def end(self) -> str:
        """How it ended, in words; waits for a moment."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return ending.tell(self._process.wait(1.0))
        return "nobody knows how"

    def _close_if_idle(self) -> None:
        if self._retired and not self._calls:
            self._control.close()  # which ends it
            threading.Thread(target=self._process.wait, name="tfgpu_magic-nursery", daemon=True).start()


class Keeper:
    """Has a nursery, in which what was set before TensorFlow's import is as it is here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nursery: Nursery | None = None

    def nursery(self) -> Nursery:
        """The nursery; a new one where there is none that lives, or it has imported TensorFlow in other conditions.

        Raises:
            OSError: no process can be started.
        """
        with self._lock:
            if self._nursery is not None and not (self._nursery.lives() and self._nursery.early == early()):
                self._drop()
            if self._nursery is None:
                self._nursery = Nursery()
            return self._nursery

    def stop(self) -> None:
        """Let the nursery go once its calls are over; the next call gets a new one."""
        with self._lock:
            if self._nursery is not None:
                self._drop()

    def _drop(self) -> None:
        nursery, self._nursery = self._nursery, None
        if nursery is not None and nursery.owner == os.getpid():
            nursery.retire()


KEEPER = Keeper()
"""This process's own."""


def early() -> dict[str, str]:
    """Those of `EARLY` that are set."""
    return {name: os.environ[name] for name in EARLY if name in os.environ}
