"""The kernel's side of `forkserver`: starts and warms it, and has it start and signal the worker processes."""

from __future__ import annotations

import atexit
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
from importlib.util import find_spec
from pathlib import Path

from tfgpu_magic.errors import WorkerDied
from tfgpu_magic.frameworks.runtime import environment
from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.process_kind import CALLS
from tfgpu_magic.isolate.process import exit_cause, wire
from tfgpu_magic.isolate.process.wire import FIGURE, ORDER
from tfgpu_magic.policy.process_state import VARIABLES

PRELOAD = ("tensorflow", "keras", "cloudpickle", "tfgpu_magic.engine.engine", "tfgpu_magic.isolate.process.shell")
"""The modules that the fork server imports before the first call; one that is not installed is left out."""

_PIPE_SIZE = 2**20  # bytes that a process may print while no thread reads them
_LAST_LINES = 5  # lines of its error output that an error message quotes
_END_TIMEOUT = 1.0  # seconds in which a process that was asked to end is waited for

_NAMES = frozenset({"HOME"})  # the directory of keras.json
_PREFIXES = (
    "H5PY_", "HDF5_", "KERAS_", "KMP_", "LD_", "MKL_", "OMP_", "OPENBLAS_", "PROTOCOL_BUFFERS_", "PYTHON", "TF_",
)  # fmt: skip
_SET_BY_LIBRARIES = frozenset({"HDF5_PLUGIN_PATH", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"})  # at their own import
_PACKAGES = ("tensorflow", "keras")


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """The kernel's handle of the worker process of one call. It owns all its descriptors, and `close` closes them.

    Attributes:
        connection: the socket that its messages arrive at and are sent to.
        out: the pipe of its standard output, of Python and of C libraries.
        err: the pipe of its standard error.
        status_pipe: the pipe that its pid arrives at, and its exit status once it and its descendants have ended.
        crash: the pipe that `faulthandler` writes to.
        server: the fork server that it is forked from.
        pid: its process id; None before it is known.
        status: its exit status, negative for a signal; None while it lives.
        orphaned: whether it was killed because the fork server ended; else it ended by itself.
    """

    connection: socket.socket
    out: int
    err: int
    status_pipe: int
    crash: int
    server: ForkServerProcess
    pid: int | None = None
    status: int | None = None
    orphaned: bool = False

    def read_status(self) -> None:
        """Wait for the next figure of the status pipe: first the pid, then the exit status.

        Raises:
            OSError: the process could not be started.
            WorkerDied: the fork server has died before it could start it.
        """
        figure = os.read(self.status_pipe, FIGURE.size)
        if not figure:
            self._note_server_end()
        elif self.pid is not None:
            (self.status,) = FIGURE.unpack(figure)
        else:
            (number,) = FIGURE.unpack(figure)
            if number < 0:
                raise OSError(-number, f"No process can be started for the call: {os.strerror(-number)}")
            self.pid = number

    def last_words(self) -> str:
        """Return what `faulthandler` wrote when it crashed."""
        os.set_blocking(self.crash, False)
        with contextlib.suppress(BlockingIOError):  # it wrote nothing, and a descendant still has the pipe
            return os.read(self.crash, _PIPE_SIZE).decode(errors="replace")
        return ""

    def signal(self, number: int) -> None:
        """Send a signal to it and to all that it has started, unless it has ended already."""
        if self.pid is not None and self.status is None:
            self.server.signal(self.pid, number)

    def close(self) -> None:
        """Close all descriptors, once; a living process is killed, and waited for in bounded time."""
        with contextlib.suppress(OSError):  # the process has closed its end
            self.connection.shutdown(socket.SHUT_RDWR)  # also where a fork of this process has the socket too
        self.signal(signal.SIGKILL)
        while self.pid is not None and self.status is None and _readable(self.status_pipe, _END_TIMEOUT):
            self.read_status()
        self.connection.close()
        for descriptor in (self.out, self.err, self.status_pipe, self.crash):
            os.close(descriptor)
        self.server.note_end()

    def _note_server_end(self) -> None:
        status = self.server.exit_status()
        if self.pid is None:
            if self.server.lives():
                raise OSError(errno.EMFILE, "No process can be started for the call: too many open files")
            last_words = self.server.last_words()
            raise WorkerDied(
                f"The process that starts isolated calls has died ({exit_cause.describe(status)}). The next call gets "
                f"a new one.{last_words}"
            )
        # The system has killed it with its fork server, but not the processes that it has started.
        _kill(self.pid, self.server.pid)
        self.status, self.orphaned = -signal.SIGKILL, True


class ForkServerProcess:
    """One fork server. It ends with this process, however that ends, or once retired and without calls.

    Attributes:
        pid: its process id.
        conditions: the conditions in which it has imported TensorFlow; see `_conditions`.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._retired = False
        self.conditions = _conditions()
        path = _standard_first([entry for entry in sys.path if isinstance(entry, str)])
        self._control, theirs = wire.pair()
        code = (
            "import sys; sys.path[:] = eval(sys.stdin.read()); from tfgpu_magic.isolate.process import forkserver; "
            f"forkserver.main({theirs.fileno()}, {os.getpid()}, {tuple(preload)!r})  {CALLS}"
        )
        # The path is not among its arguments, which other users can read and which have less room.
        self._stderr, given = os.fdopen(wire.memory(), "rb"), os.fdopen(wire.memory(ascii(path).encode()), "rb")
        try:
            # A session of its own: signals of the terminal and of Jupyter go to whole groups, and it must outlive
            # the kernel's group to end its calls.
            self._process = subprocess.Popen(
                [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", code],  # type: ignore[attr-defined]
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
            given.close()
        self.pid = self._process.pid

    def lives(self) -> bool:
        """Return whether it has not ended, so that calls can be started."""
        return self._process.poll() is None

    def start(self) -> WorkerProcess:
        """Start a worker process; `WorkerProcess.read_status` waits until the fork server is warm.

        Raises:
            OSError: there are no descriptors left, or the fork server has ended.
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
            status, out, err, crash = pipes
            for pipe in (out, err):
                with contextlib.suppress(OSError):  # unprivileged users have a limit
                    fcntl.fcntl(pipe[0], fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
            with self._lock:
                passed = [status[1], its_connection.fileno(), out[1], err[1], crash[1], *_resource_tracker()]
                socket.send_fds(self._control, [ORDER.pack(0, 0)], passed)
                self._calls += 1
            ours.pop_all()
        return WorkerProcess(connection, out[0], err[0], status[0], crash[0], self)

    def signal(self, pid: int, number: int) -> None:
        """Signal a call's process group through the fork server, which alone knows that the pid is still the call's."""
        with self._lock, contextlib.suppress(OSError):
            self._control.send(ORDER.pack(pid, number))

    def note_end(self) -> None:
        """Count a call as ended."""
        with self._lock:
            self._calls -= 1
            self._close_if_idle()

    def retire(self) -> None:
        """Start no more calls, and end once there are none."""
        with self._lock:
            self._retired = True
            self._close_if_idle()

    def exit_status(self) -> int | None:
        """Wait a moment for its end; return its exit status, as in `subprocess`, or None if it has not ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_END_TIMEOUT)
        return None

    def last_words(self) -> str:
        """Return its last error output, as lines for a message, where it ended by itself; else an empty text."""
        lines = os.pread(self._stderr.fileno(), _PIPE_SIZE, 0).decode(errors="replace").strip().splitlines()
        return "\n".join(["\nIt said:", *lines[-_LAST_LINES:]]) if lines and (self._process.poll() or 0) > 0 else ""

    def disown(self) -> None:
        """Close its descriptors in a fork of the process that owns it, which would keep it alive."""
        self._close()
        self._process.poll()  # which sees that it is no child of this process

    def _close(self) -> None:
        self._control.close()  # which ends the fork server
        self._stderr.close()

    def _close_if_idle(self) -> None:
        if self._retired and not self._calls:
            self._close()
            if self.exit_status() is None:  # a thread waits for it: no zombie stays
                with contextlib.suppress(RuntimeError):  # none starts any more: Python ends
                    threading.Thread(target=self._wait, name="tfgpu_magic-forkserver", daemon=True).start()

    def _wait(self) -> None:  # by this frame its thread is known for ours (`user_code`)
        self._process.wait()


class ForkServerClient:
    """The fork server of this process, replaced when the conditions of TensorFlow's import have changed.

    Attributes:
        preload: the modules that a new fork server imports, beside `host.preload`.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self.preload = preload
        self._lock = threading.RLock()
        self._server: ForkServerProcess | None = None

    def process(self) -> ForkServerProcess:
        """Return the fork server; start one where none lives, or it has imported TensorFlow in other conditions.

        Raises:
            OSError: no process can be started.
        """
        with self._lock:
            if self._server is not None and not (self._server.lives() and self._server.conditions == _conditions()):
                self.stop()
            if self._server is None:
                self._server = ForkServerProcess((*self.preload, *process_kind.preload))
            return self._server

    def start(self) -> WorkerProcess:
        """Start a worker process, as `ForkServerProcess.start` does.

        Raises:
            OSError: no process can be started.
        """
        with self._lock:  # so that no other thread retires it in between
            try:
                return self.process().start()
            except ConnectionError:  # it has died since it was checked
                self.stop()
                return self.process().start()

    def stop(self) -> None:
        """End the fork server once its calls have ended; the next call gets a new one."""
        with self._lock:
            server, self._server = self._server, None
            if server is not None:
                server.retire()

    def forget(self) -> None:
        """Forget the fork server, in a fork of the process that owns it."""
        self._lock = threading.RLock()  # a thread that the fork does not have may have held it
        server, self._server = self._server, None
        if server is not None:
            server.disown()


def _kill(group: int, session: int) -> None:
    """Kill the living processes of a call whose fork server has died: its group, within the fork server's session.

    When none of them is alive, the group's number may belong to another program.
    """
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            _, _, *ids = entry.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if ids == [str(group), str(session)]:
                os.kill(int(entry.parent.name), signal.SIGKILL)


def _conditions() -> dict[str, object]:
    """Return what TensorFlow's import depends on: variables, and which TensorFlow is installed; in others it is stale.

    All other variables are set in the worker process early enough.
    """
    set_later = {*VARIABLES, *_SET_BY_LIBRARIES}
    found = {
        name: value
        for name, value in environment().items()
        if (name in _NAMES or name.startswith(_PREFIXES)) and name not in set_later
    }
    return {**found, **{name: _installed(name) for name in _PACKAGES}}


def _standard_first(path: Sequence[str]) -> list[str]:
    """Sort a search path so that no file of the user's, such as ``select.py``, hides a standard library module.

    A kernel has imported the standard library's modules before it looks beside the notebook.
    """
    library = str(Path(os.__file__).parent)
    return sorted(path, key=lambda entry: entry not in (library, f"{library}/lib-dynload"))


def _installed(package: str) -> tuple[str, int, int] | None:
    """Return where a package is, and the identity of its file, which an installer replaces."""
    with contextlib.suppress(ImportError, ValueError, AttributeError, OSError):
        origin = str(getattr(find_spec(package), "origin", None))
        found = Path(origin).stat()
        return origin, found.st_mtime_ns, found.st_ino
    return None


def _resource_tracker() -> list[int]:
    """Return the descriptor of this process's resource tracker, if one runs: shared memory has been used here."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    descriptor = getattr(tracker, "_fd", None)
    return [] if descriptor is None else [descriptor]


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()  # select.select takes no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


FORK_SERVER = ForkServerClient(PRELOAD)
"""The one client of this process. In a child that is forked from this process it has no fork server."""

os.register_at_fork(after_in_child=FORK_SERVER.forget)
atexit.register(FORK_SERVER.stop)
