"""Starts the collector for a line or a view: light, since the first line of a kernel starts it before all else.

What it answers and publishes is read by `see`.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import time

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.child_process import ChildProcess, nvml_path
from tfgpu_magic.ground.process_kind import SIMULATED
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.viewers import ASKED, LIBRARIES, LINGER, LOCK, PROCESS_NAME, READING_TIMEOUT

_KEPT = ("TFGPU_", "PATH", "HOME", "LANG", "LC_")
"""Prefixes of the variables that a collector gets; it gets none of a notebook's secrets."""
_ENDED = re.compile(rf"(\d+) \({PROCESS_NAME}\) Z 1 ")
"""How the system shows one of ours that has ended, and is a child of process 1. Source: proc_pid_stat(5)."""
# -c and not the file's path: Python keeps the bytecode of what is imported, not of the script it runs. -I and -S as in
# `child_process`. It forks at once, so that its starter has a child for milliseconds only. No garbage collection before
# the answer: what lives 40 ms and imports 10,000 objects has none to collect (3 ms).
CODE = (
    "'tfgpu_magic: reads the GPUs for all views of this user'; "  # for who looks at the list of processes
    "import gc, os, sys; os.fork() and os._exit(0); gc.disable(); linger, patience, publishes, *paths = sys.argv[1:]; "
    "sys.path += paths; from tfgpu_magic.machine.collector import main; "
    "main(float(linger), float(patience), publishes=publishes == 'True')"
)
"""What is run to be a collector."""


class Start(ChildProcess):
    """The start of a collector, which soon is nobody's child, and its first answer.

    Args:
        place: where it publishes; None has it answer, and nothing else.
        linger: seconds that it stays after the last viewer's look.
        reading_timeout: seconds that a reading may take; None is `READING_TIMEOUT`.

    Attributes:
        begun: when, in seconds since the epoch.
        heard: whether somebody waits for its answer, or has had it: who comes later needs another.
        reading_timeout: as above.

    Raises:
        OSError: no process can be started.
    """

    def __init__(
        self, place: BoardDirectory | None, linger: float = LINGER, reading_timeout: float | None = None
    ) -> None:
        if os.getpid() == 1:
            _reap()
        self.begun, self.heard = time.time(), True
        self.reading_timeout = READING_TIMEOUT if reading_timeout is None else reading_timeout
        variables = environment(simulated=SIMULATED in os.environ)
        super().__init__(
            ["-c", CODE, str(linger), str(self.reading_timeout), str(place is not None), *nvml_path()],
            env=variables if place is None else {**variables, "TFGPU_MAGIC_DIR": str(place.path)},
            cwd="/",
            patience=math.inf,
        )

    @property
    def reply(self) -> str:
        """The last line of what it has written, once it has; a library may print too, before that."""
        return (self._answer[0].splitlines() or [""])[-1] if self._answer else ""

    @property
    def failure(self) -> str:
        """Why it cannot publish; empty as long as it has not ended, and if it can."""
        return self._answer[1] if self._answer else ""


latest: Start | None = None
"""The last one that was started for a snapshot."""


def _forget() -> None:
    global latest
    latest = None


os.register_at_fork(after_in_child=_forget)  # a fork has no thread that hears the answer


def start(place: BoardDirectory | None) -> Start:
    """Start a collector for a snapshot.

    Args:
        place: where it publishes; None has it answer, and nothing else.

    Raises:
        OSError: no process can be started.
    """
    global latest
    latest = Start(place)
    return latest


def prefetch() -> None:
    """Begin to read the GPUs where nobody does, for a `see.snapshot` that will soon be wanted."""
    with contextlib.suppress(MonitorError, OSError), BoardDirectory() as place:
        if not is_taken(place):
            place.touch(ASKED)
            start(place).heard = False


def is_pending() -> bool:
    """Return whether the collector that was started last for a snapshot has not answered yet."""
    return latest is not None and not latest.has_ended


def is_taken(place: BoardDirectory) -> bool:
    """Return whether a collector holds the lock.

    It is tried for microseconds, and released before the file is closed: a process that is forked meanwhile has the
    descriptor too, and would keep the lock.
    """
    fd = place.open(LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def environment(*, simulated: bool) -> dict[str, str]:
    """Return the variables of a process that calls the driver: a few of this one's.

    It searches for the driver's library where the system does: a search path that was set for a kernel is for that
    kernel alone. A simulated machine's library is found by that path only.
    """
    kept = (*_KEPT, "LD_") if simulated else _KEPT
    found = {name: value for name, value in os.environ.items() if name.startswith(kept)}
    return found if simulated else {**found, LIBRARIES: os.environ.get("LD_LIBRARY_PATH", "")}


def _reap() -> None:
    """Reap what was started here and has ended, as process 1 must, whose children they become when their starters end.

    Other processes 1 reap all of their children. Ours are recognised by their names, since other code may wait for
    other children.
    """
    for pid in os.listdir("/proc"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            if (ended := _ENDED.match(stat.read())) is not None:
                os.waitpid(int(ended[1]), os.WNOHANG)
