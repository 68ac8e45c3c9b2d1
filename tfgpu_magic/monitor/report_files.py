"""Kernels' own reports on the board: a small file for each kernel, which is there as long as the kernel is.

The kernel holds a lock on its file, and the system lets go of that when the kernel ends, however it ends. So a reader
knows the dead from the living without knowing their pids, which mean nothing in another container; and the system says
which pid here has the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import struct
import time
import zlib
from dataclasses import replace

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.directory import BoardDirectory, elsewhere
from tfgpu_magic.monitor.report import Report

VERSION = 2
"""Of the report's fields. A kernel of an older version is seen, without its figures; one of a newer version is not."""
PREFIX = f"report-{VERSION}-"
_READ = tuple(f"report-{version}-" for version in range(1, VERSION + 1))
LONGEST = 2**16
"""Bytes of a report; what is longer is no report."""
AT_LEAST_EVERY = 30.0
"""Seconds after which a kernel posts again, at the latest, while its figures may change."""
PATIENCE = 45.0
"""Seconds after which the figures of one that should have posted again are unknown: it hangs, or cannot write."""

_HEAD = struct.Struct("<II")  # length and checksum of the JSON that follows
_FLOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, pid. Source: fcntl_locking(2), Linux
_ours: set[str] = set()
"""Files of this process. To open and close one would drop our lock on it: that is how POSIX locks are."""


class ReportFile:
    """This kernel's place on the board.

    Args:
        place: where the board is; it is let go of with this.

    Raises:
        MonitorError: the file cannot be made.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self._place = place
        self._pid = os.getpid()
        self.name = f"{PREFIX}{self._pid}-{secrets.token_hex(4)}"
        try:
            self._fd = self._make("new-" + self.name)
        except BaseException:
            place.close()
            raise

    def _make(self, new: str) -> int:
        """Make the file, and return its descriptor. It gets its name when it is locked."""
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
        """Let readers see this report instead of the one before.

        Raises:
            OSError: it could not be written.
        """
        text = report.to_json().encode()
        os.pwrite(self._fd, _HEAD.pack(len(text), zlib.crc32(text)) + text, 0)

    def is_there(self) -> bool:
        """Tell whether readers still find it: nobody removed it or its directory, and this is not a forked child."""
        return os.getpid() == self._pid and self._place.is_there() and self._place.holds(self.name, self._fd)

    def close(self) -> None:
        """Take the report away."""
        if os.getpid() == self._pid:
            with contextlib.suppress(MonitorError):
                self._place.remove(self.name)
            _ours.discard(self._place.name(self.name))
        os.close(self._fd)
        self._place.close()


class ReportFiles:
    """All kernels' reports in one directory but this process's own. Dead kernels' files are cleared away.

    Args:
        place: the directory, which is let go of by `close`.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self.place = place
        self._known: dict[str, tuple[bytes, Report]] = {}

    def close(self) -> None:
        """Let go of the directory."""
        self.place.close()

    def read(self) -> tuple[Report, ...]:
        """Read every report that is there now; some 10 µs each. What is half written is as it was before.

        Pids are those of this process's namespace, and negative for kernels that are in none that can be seen from it.
        Figures are left out where they are too old.
        """
        before, self._known = self._known, {}
        found: list[Report] = []
        for name in self.place.names("report-"):
            if not name.startswith(_READ) or self.place.name(name) in _ours:
                continue
            with contextlib.suppress(OSError, ValueError, MonitorError):
                if (report := self._read(name, before.get(name))) is not None:
                    found.append(report)
        return tuple(found)

    def _read(self, name: str, before: tuple[bytes, Report] | None) -> Report | None:
        fd = self.place.open(name, os.O_RDWR)
        try:
            pid = _holder(fd)
            if pid is None:
                self.place.remove(name)
                return None
            data = os.pread(fd, _HEAD.size + LONGEST, 0)
            age = time.time() - os.fstat(fd).st_mtime
        finally:
            os.close(fd)
        text = _text(data)
        if text is not None and (before is None or before[0] != text):
            before = text, Report.from_json(text.decode())
        if before is None:
            return None
        self._known[name] = before
        report = before[1].without_figures() if before[1].goes_on and age > PATIENCE else before[1]
        return replace(report, pid=pid or -int(name.rpartition("-")[2], 16) - 1)


class AllReportFiles:
    """The reports in all directories where kernels may have begun to post, as long as these are there.

    Which directory is the best may change while kernels run: a login makes one, and its end removes it.

    Args:
        place: where the board is; whoever has it lets go of it.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self._here = ReportFiles(place)
        self._others: list[ReportFiles] = []
        self.find()

    def find(self) -> None:
        """See which directories there are now."""
        before, self._others = {one.place.path: one for one in self._others}, []
        for place in elsewhere(self._here.place):
            known = before.pop(place.path, None)
            if known is not None and known.place.same(place):
                place.close()
                self._others.append(known)
            else:
                self._others.append(ReportFiles(place))
                if known is not None:
                    known.close()
        for one in before.values():
            one.close()

    def read(self) -> tuple[Report, ...]:
        """Read every report that is there now, as `ReportFiles.read`."""
        return tuple(report for one in (self._here, *self._others) for report in one.read())

    def close(self) -> None:
        """Let go of the other directories."""
        for one in self._others:
            one.close()
        self._others = []


def _text(data: bytes) -> bytes | None:
    """Return the JSON in a file; None when it is half written, or none."""
    if len(data) < _HEAD.size:
        return None
    length, check = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length]
    return text if len(text) == length and zlib.crc32(text) == check else None


def _holder(fd: int) -> int | None:
    """Return the pid of the process that has the lock on a file; 0 if it has none here, None if there is no such."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else max(0, pid)
