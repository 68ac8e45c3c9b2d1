"""The kernel's side of the fork server: starts it, warms it, and has it start and signal the processes of calls."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from tfgpu_magic.config.runtime import environment
from tfgpu_magic.errors import WorkerDied
from tfgpu_magic.isolate.process import conditions, descendants, exit_cause, wire
from tfgpu_magic.isolate.process.protocol import FIGURE, ORDER, READY
from tfgpu_magic.probe import CALLS

_PIPE = 2**20  # bytes that a process may print while nobody listens
_WORDS = 5  # lines of what it said last
_PARTING = 1.0  # seconds in which a process that was told to end is waited for


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """The process of one call. All descriptors are this object's own, and `close` closes them.

    Attributes:
        connection: where its messages come and go.
        out: what it prints, Python or C.
        err: what it prints to standard error.
        told: where its pid comes, and its exit status when it has ended and its descendants have.
        crash: where Python says at a crash where it was.
        pid: its process id; None before it is told.
        status: its exit status, negative for a signal; None while it lives.
        orphaned: whether the fork server has ended and taken it along; else it ended by itself.
    """

    connection: socket.socket
    out: int
    err: int
    told: int
    crash: int
    _server: ForkServerProcess
    pid: int | None = None
    status: int | None = None
    orphaned: bool = False

    def hear(self) -> None:
        """Read what is told: first the pid, then the exit status. Waits for it.

        Raises:
            OSError: the process could not be started.
            WorkerDied: the fork server has died before it could start it.
        """
        figure = os.read(self.told, FIGURE.size)
        if not figure:
            self._be_lost()
        elif self.pid is not None:
            (self.status,) = FIGURE.unpack(figure)
        else:
            (number,) = FIGURE.unpack(figure)
            if number < 0:
                raise OSError(-number, f"No process can be started for the call: {os.strerror(-number)}")
            self.pid = number

    def last_words(self) -> str:
        """What Python said when it crashed."""
        os.set_blocking(self.crash, False)
        with contextlib.suppress(BlockingIOError):  # it said nothing, and something it has started lives
            return os.read(self.crash, _PIPE).decode(errors="replace")
        return ""

    def server_status(self) -> int | None:
        """How the fork server that took it along ended, as `ForkServer.end` has it."""
        return self._server.end()

    def signal(self, number: int) -> None:
        """Send a signal to it and all that it has started; to one that has ended already, nothing happens."""
        if self.pid is not None and self.status is None:
            self._server.signal(self.pid, number)

    def close(self) -> None:
        """Let go of it, once; one that lives is killed, and waited for as long as that may take."""
        with contextlib.suppress(OSError):  # it has closed its end
            self.connection.shutdown(socket.SHUT_RDWR)  # also where a process that was forked of us has it too
        self.signal(signal.SIGKILL)
        while self.pid is not None and self.status is None and _readable(self.told, _PARTING):
            self.hear()
        self.connection.close()
        for descriptor in (self.out, self.err, self.told, self.crash):
            os.close(descriptor)
        self._server.over()

    def _be_lost(self) -> None:
        status = self._server.end()
        if self.pid is None:
            if self._server.lives():
                raise OSError(errno.EMFILE, "No process can be started for the call: too many open files")
            said = self._server.last_words()
            raise WorkerDied(
                f"The process that starts isolated calls has died ({exit_cause.tell(status)}). The next call gets a "
                f"new one.{said}"
            )
        # The system has killed it with its fork server, but not what it has started.
        descendants.kill(self.pid, self._server.pid)
        self.status, self.orphaned = -signal.SIGKILL, True


class ForkServerProcess:
    """One fork server. It ends with this process, however that ends, or when it is retired and its last call is over.

    Attributes:
        pid: its process id.
        conditions: what its imports went by.
        warmed: seconds that its imports took; None while that is not known.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._retired = False
        self.conditions = conditions.now()
        self.warmed: float | None = None
        path = conditions.standard_first([entry for entry in sys.path if isinstance(entry, str)])
        self._control, theirs = wire.pair()
        code = (
            "import sys; sys.path[:] = eval(sys.stdin.read()); from tfgpu_magic.isolate.process import forkserver; "
            f"forkserver.main({theirs.fileno()}, {os.getpid()}, {tuple(preload)!r})  {CALLS}"
        )
        # The path is not among its arguments, which are for all to see, and have less room.
        self._said, given = os.fdopen(wire.memory(), "rb"), os.fdopen(wire.memory(ascii(path).encode()), "rb")
        try:
            # A session of its own: signals of the terminal and of Jupyter go to whole groups, and it must live to
            # end its calls when the kernel's group is killed.
            self._process = subprocess.Popen(
                [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", code],  # type: ignore[attr-defined]
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                env=environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            self._let_go()
            raise
        finally:
            theirs.close()
            given.close()
        self.pid = self._process.pid

    def lives(self) -> bool:
        """Tell whether calls can be started: it has not ended."""
        return self._process.poll() is None

    def is_warm(self, seconds: float = 0.0) -> bool:
        """Wait until everything is imported, at most so long; tell whether it is."""
        if self.warmed is None and _readable(self._control.fileno(), seconds):
            with contextlib.suppress(OSError):
                said = self._control.recv(64, socket.MSG_DONTWAIT)
                if said.startswith(READY):
                    self.warmed = FIGURE.unpack(said[len(READY) :])[0] / 1000
        return self.warmed is not None

    def start(self) -> WorkerProcess:
        """Have a process started. Where it is not warm yet, that takes until it is: `WorkerProcess.hear` waits.

        Raises:
            OSError: there are no descriptors left, or it has ended.
        """
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            connection, its_connection = wire.pair()
            ours.callback(connection.close)
            theirs.callback(its_connection.close)
            pipes: list[tuple[int, int]] = []
            for _ in range(4):
                pipes.append(os.pipe2(os.O_CLOEXEC))
                ours.callback(os.close, pipes[-1][0])
                theirs.callback(os.close, pipes[-1][1])
            told, out, err, crash = pipes
            for pipe in (out, err):
                with contextlib.suppress(OSError):  # unprivileged users have a limit
                    fcntl.fcntl(pipe[0], fcntl.F_SETPIPE_SZ, _PIPE)
            with self._lock:
                handed = [told[1], its_connection.fileno(), out[1], err[1], crash[1]]
                socket.send_fds(self._control, [ORDER.pack(0, 0)], handed)
                self._calls += 1
            ours.pop_all()
        return WorkerProcess(connection, out[0], err[0], told[0], crash[0], self)

    def signal(self, pid: int, number: int) -> None:
        """Signal a call's process group. The fork server does it: only it knows that the number is still the call's."""
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

    def end(self) -> int | None:
        """Its exit status, as `subprocess` has it; waits for a moment, and is None where nobody knows."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_PARTING)
        return None

    def last_words(self) -> str:
        """What it said before it ended by itself, as lines of their own."""
        said = os.pread(self._said.fileno(), _PIPE, 0).decode(errors="replace").strip().splitlines()
        return "\n".join(["\nIt said:", *said[-_WORDS:]]) if said and (self._process.poll() or 0) > 0 else ""

    def disown(self) -> None:
        """Forget it, in a process that was forked of its own: it must not seem that somebody there wants calls."""
        self._let_go()
        self._process.poll()  # it is no child here

    def _let_go(self) -> None:
        self._control.close()  # which ends it
        self._said.close()

    def _close_if_idle(self) -> None:
        if self._retired and not self._calls:
            self._let_go()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PARTING)


class ForkServerClient:
    """Has a fork server, in which what was set before TensorFlow's import is as it is here.

    Attributes:
        preload: what a new fork server imports.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self.preload = preload
        self._lock = threading.RLock()
        self._server: ForkServerProcess | None = None

    def process(self) -> ForkServerProcess:
        """The fork server; a new one where there is none that lives, or it has imported TensorFlow in other conditions.

        Raises:
            OSError: no process can be started.
        """
        with self._lock:
            if self._server is not None and not (self._server.lives() and self._server.conditions == conditions.now()):
                self.stop()
            if self._server is None:
                self._server = ForkServerProcess(self.preload)
            return self._server

    def start(self) -> WorkerProcess:
        """Have a process started, as `ForkServer.start` does.

        Raises:
            OSError: no process can be started.
        """
        with self._lock:  # so that nobody retires it in between
            try:
                return self.process().start()
            except ConnectionError:  # it has died since it was looked at
                self.stop()
                return self.process().start()

    def stop(self) -> None:
        """Let the fork server go once its calls are over; the next call gets a new one."""
        with self._lock:
            server, self._server = self._server, None
            if server is not None:
                server.retire()

    def forget(self) -> None:
        """In a process that was forked of the fork server's own: have none."""
        self._lock = threading.RLock()  # a thread that is not here may have had it
        server, self._server = self._server, None
        if server is not None:
            server.disown()


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()  # select.select takes no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * seconds))
