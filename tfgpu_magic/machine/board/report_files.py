"""Kernels' own reports on the board: a small file for each kernel, which is there as long as the kernel is.

The kernel holds a lock on its file, and the system releases it when the kernel ends, however it ends. So a reader tells
the dead from the living without their pids, which mean nothing in another container; and the system reports which pid
here holds the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.machine.board.directory import CHECK, BoardDirectory, checked, close_own, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.ground.report import Report

PREFIX = "report-2-"
"""How the files' names begin, with the version of the report's fields; others are not read."""
LARGEST_REPORT = 2**16
"""The largest report, in bytes; what is longer is not read."""
TRIES = 100
"""How often one that is half written is read again: that takes its writer microseconds."""
AT_LEAST_EVERY = 30.0
"""Seconds after which a kernel posts again, at the latest, while its figures may change."""
FIGURES_EXPIRE_AFTER = 45.0
"""Seconds after which the figures of a kernel that should have posted again are unknown: it hangs, or cannot write."""
NAMES = "names-1"
"""The name of the file of renamed notebooks, with the version of its content: JSON, a path for each kernel's id, the
newest last."""
MOST_NAMES = 500
"""How many of them are kept; kernels that have ended are dropped in this way."""
LARGEST_NAMES = 2**20
"""The largest file of names, in bytes; what is longer is not read."""

_FLOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, pid. Source: fcntl_locking(2), Linux
_ours: set[str] = set()
"""Files of this process. To open and close one would release its lock, as POSIX locks work."""


class ReportFile:
    """This kernel's report file.

    Args:
        place: where the board is; it is closed with this.

    Raises:
        MonitorError: the file cannot be made.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self._place = place
        self._pid = os.getpid()
        self.name = f"{PREFIX}{self._pid}-{os.urandom(4).hex()}"
        try:
            self._fd = self._make("new-" + self.name)
        except BaseException:
            place.close()
            raise
        self._is = os.fstat(self._fd)

    def _make(self, new: str) -> int:
        """Make the file, and return its descriptor. The file gets its name when it is locked."""
        place = self._place
        fd = place.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock: a child that was forked meanwhile would keep it
            _ours.add(place.name(self.name))
            place.replace(new, self.name)
        except OSError as error:
            _ours.discard(place.name(self.name))
            os.close(fd)
            place.remove(new)
            raise MonitorError(f"{place.path} takes no report ({error.strerror}).") from error
        return fd

    def post(self, report: Report) -> None:
        """Replace the report that readers see.

        Raises:
            OSError: it could not be written.
        """
        os.pwrite(self._fd, checked(report.to_json().encode()), 0)

    def is_there(self) -> bool:
        """Tell whether readers still find the file: it and its directory exist, and this is not a forked child."""
        return os.getpid() == self._pid and self._place.is_there() and self._place.holds(self.name, self._fd)

    def close(self) -> None:
        """Remove the report."""
        if os.getpid() == self._pid:
            with contextlib.suppress(MonitorError):
                self._place.remove(self.name)
            _ours.discard(self._place.name(self.name))
        close_own(self._fd, self._is)
        self._place.close()


class ReportFiles:
    """All kernels' reports but this process's own. Dead kernels' files are removed.

    Args:
        place: where the board is; its owner closes it.

    Attributes:
        names: what renamed notebooks were called at the last `read`, by their kernels' ids.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self.names: Mapping[str, str] = {}
        self.place = place
        self._before: dict[str, tuple[bytes, Report]] = {}
        self._known = self._before

    def read(self) -> tuple[Report, ...]:
        """Read every report that is there now, in some 10 µs each. Of one that is half written, return the one before.

        Pids are those of this process's namespace, and negative for kernels that are in none that can be seen from it.
        Figures are left out where they are too old. A notebook that was renamed has its new path.
        """
        self.names = renamed(self.place)
        self._before, self._known = self._known, {}
        found: list[Report] = []
        for name in self.place.names(PREFIX):
            with contextlib.suppress(OSError, ValueError, MonitorError):
                if self.place.name(name) not in _ours and (report := self._read(name)) is not None:
                    found.append(report)
        return tuple(found)

    def _read(self, name: str) -> Report | None:
        fd = self.place.open(name, os.O_RDWR)
        try:
            pid = holder(fd)
            if pid is None:
                self.place.remove(name)
                return None
            for _ in range(TRIES):
                data = os.pread(fd, CHECK + LARGEST_REPORT, 0)
                if (text := whole(data)) is not None or not data:
                    break
            age = time.time() - os.fstat(fd).st_mtime
        finally:
            os.close(fd)
        before = self._before.get(name)
        if text is not None and (before is None or before[0] != text):
            from tfgpu_magic.ground.report import Report  # speed of a first `%tf_gpu` line where no other kernel is

            before = text, Report.from_json(text.decode())
        if before is None:
            return None
        self._known[name] = before
        report = before[1].without_figures() if before[1].goes_on and age > FIGURES_EXPIRE_AFTER else before[1]
        path = self.names.get(report.kernel, report.notebook)
        return report.placed(pid or -int(name.rpartition("-")[2], 16) - 1, path)


def holder(fd: int, start: int = 0, length: int = 0) -> int | None:
    """Return the pid of the other process that has a lock: 0 if it has no pid here, None if no other process has one.

    Args:
        fd: the file's descriptor.
        start: the first byte that may be locked.
        length: how many; 0 is all from there.
    """
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, request))
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def rename(place: BoardDirectory, kernel: str, path: str) -> None:
    """Keep what a kernel's notebook is called now.

    Args:
        place: where the board is.
        kernel: the kernel's id.
        path: the notebook's path in the file system.

    Raises:
        OSError: it cannot be written.
        MonitorError: something else is in the file's place.
    """
    fd = place.open(NAMES, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        known = {one: called for one, called in _parsed(fd).items() if one != kernel}
        kept = dict([*known.items(), (kernel, path)][-MOST_NAMES:])
        os.pwrite(fd, checked(json.dumps(kept).encode()), 0)
    finally:
        os.close(fd)


def renamed(place: BoardDirectory) -> Mapping[str, str]:
    """Return the path of each notebook that was renamed, by its kernel's id."""
    with contextlib.suppress(OSError, MonitorError):
        fd = place.open(NAMES, os.O_RDONLY)
        try:
            return _parsed(fd)
        finally:
            os.close(fd)
    return {}


def _parsed(fd: int) -> dict[str, str]:
    with contextlib.suppress(ValueError):
        names = json.loads(whole(os.pread(fd, CHECK + LARGEST_NAMES, 0)) or b"{}")
        return {str(kernel): str(path) for kernel, path in names.items()} if isinstance(names, dict) else {}
    return {}
