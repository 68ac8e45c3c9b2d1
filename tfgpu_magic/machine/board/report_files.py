"""Processes' own reports on the board: a file of JSON for each, replaced whole, which is there as long as the process.

Kernels and programs report what they do with GPUs, and a server what the notebooks are called that it has renamed. Each
holds a lock on its file, and the system releases it when the process ends, however it ends. So a reader tells the dead
from the living without their pids, which mean nothing in another container; and the system reports which pid here holds
the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.machine.board.directory import BoardDirectory, close_own

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.ground.report import Report

PREFIX = "report-3-"
"""How the files' names begin, with the version of the report's fields; others are not read."""
LARGEST_REPORT = 2**20
"""The largest report, in bytes; what is longer is not read."""
AT_LEAST_EVERY = 30.0
"""Seconds after which a kernel posts again, at the latest, while its figures may change."""
FIGURES_EXPIRE_AFTER = 45.0
"""Seconds after which the figures of a kernel that should have posted again are unknown: it hangs, or cannot write."""

_FLOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, pid. Source: fcntl_locking(2), Linux
_ours: set[str] = set()
"""Files of this process. To open and close one would release its lock, as POSIX locks work."""


class ReportFile:
    """This process's report file. If the board's directory or the file is gone, the next report goes into a new one."""

    def __init__(self) -> None:
        self._place: BoardDirectory | None = None
        self._name, self._pid, self._fd = "", 0, -1

    def post(self, report: Report) -> None:
        """Replace the report that readers see.

        Raises:
            OSError: it could not be written; readers still find the one before.
            MonitorError: as `BoardDirectory`, or something else is in the way.
        """
        place = self._open_directory()
        fd = place.rewrite(self._name, report.to_json().encode(), _lock)
        self._close_file()
        self._fd, self._is = fd, os.fstat(fd)

    def close(self) -> None:
        """Remove the report. A later one makes a new file."""
        place, self._place = self._place, None
        if place is not None and os.getpid() == self._pid:
            with contextlib.suppress(MonitorError):
                place.remove(self._name)
            _ours.discard(place.full_name(self._name))
        self._close_file()
        if place is not None:
            place.close()

    def _close_file(self) -> None:
        if self._fd >= 0:
            close_own(self._fd, self._is)
        self._fd = -1

    def _open_directory(self) -> BoardDirectory:
        """Return the board's directory, opened again if readers do not find the file, or this is a forked child."""
        place = self._place
        if place is None or os.getpid() != self._pid or not place.is_there() or not place.has(self._name, self._fd):
            self.close()
            self._place = place = BoardDirectory()
            self._pid = os.getpid()
            self._name = f"{PREFIX}{self._pid}-{os.urandom(4).hex()}"
            _ours.add(place.full_name(self._name))
        return place


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
        """Read every kernel's and program's report that is there now, in some 10 µs each.

        Pids are those of this process's namespace, and negative for kernels that are in none that can be seen from it.
        Figures are left out where they are too old. A notebook that was renamed has its new path.
        """
        self._before, self._known = self._known, {}
        found: list[Report] = []
        for name in self.place.list_names(PREFIX):
            with contextlib.suppress(OSError, ValueError, MonitorError):
                if self.place.full_name(name) not in _ours and (report := self._read(name)) is not None:
                    found.append(report)
        self.names = names = {kernel: path for one in found for kernel, path in one.names.items()}
        return tuple([one.with_place(one.pid, names.get(one.kernel, one.notebook)) for one in found if not one.names])

    def _read(self, name: str) -> Report | None:
        fd = self.place.open(name, os.O_RDWR)
        try:
            pid = lock_owner(fd)
            if pid is None:
                if not self.place.has(name, fd):  # it was replaced since it was opened
                    return self._read(name)
                self.place.remove(name)
                return None
            text, age = os.pread(fd, LARGEST_REPORT, 0), time.time() - os.fstat(fd).st_mtime
        finally:
            os.close(fd)
        before = self._before.get(name)
        if before is None or before[0] != text:
            from tfgpu_magic.ground.report import Report  # speed of a first `%tf_gpu` line where no other kernel is

            before = text, Report.from_json(text.decode())
        self._known[name] = before
        report = before[1].without_figures() if before[1].changes_soon and age > FIGURES_EXPIRE_AFTER else before[1]
        return report.with_place(pid or -int(name.rpartition("-")[2], 16) - 1, report.notebook)


def _lock(fd: int) -> None:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock: a child that was forked meanwhile would keep it


def lock_owner(fd: int, start: int = 0, length: int = 0) -> int | None:
    """Return the pid of the other process that has a lock: 0 if it has no pid here, None if no other process has one.

    Args:
        fd: the file's descriptor.
        start: the first byte that may be locked.
        length: how many; 0 is all from there.
    """
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, request))
    return None if kind == fcntl.F_UNLCK else max(0, pid)
