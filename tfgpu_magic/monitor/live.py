"""Look at the board as often as you like: it has a collector behind it as long as somebody looks."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor import lockfile
from tfgpu_magic.monitor.board import LOCK, NOTHING, Look, Message, Reader
from tfgpu_magic.monitor.directory import BoardDirectory
from tfgpu_magic.monitor.report_files import AllReportFiles
from tfgpu_magic.monitor.schedule import Wanted
from tfgpu_magic.monitor.settings import LINGER, PATIENCE
from tfgpu_magic.monitor.snapshot import Parser, Snapshot
from tfgpu_magic.monitor.starting import begin, start
from tfgpu_magic.monitor.takeover import Doubt

if TYPE_CHECKING:
    from tfgpu_magic.monitor.history import History
    from tfgpu_magic.monitor.report import Report

CHECK_EVERY = 0.5
"""Seconds between two checks of one who looks that there is a collector; they tell it that somebody looks, too."""

PLACE_EVERY = 5.0
"""Seconds between two looks whether the board's directory is still the best, and still shows the same GPUs."""

RARELY = 10.0
"""Seconds between two lists of processes, at the least, while nobody looks at these."""


class Live:
    """The GPUs as they are from second to second, for one who looks at them again and again.

    Every look costs microseconds, whoever else looks: one process asks the drivers for all of the user's. It is
    started by the first look, started again when it was killed, and leaves when nobody has looked for a while. Not
    thread-safe.

    Args:
        linger: seconds that a collector stays after the last look, if it is started here.
        patience: seconds that a reading may take, until a collector that is started here gives up.
        every: seconds between two readings that are wanted here; who wants them most often decides.

    Example:
        >>> with Live() as live:  # doctest: +SKIP
        ...     used = [gpu.used for gpu in live.wait().snapshot.gpus]
    """

    def __init__(self, *, linger: float = LINGER, patience: float = PATIENCE, every: float = 1.0) -> None:
        self._options = (str(linger), str(patience))
        self._wanted = Wanted(every, 2.0 * every)
        self._place: BoardDirectory | None = None
        self._reader: Reader | None = None
        self._report_files: AllReportFiles | None = None
        self._check_at = self._place_at = 0.0
        self._doubt = Doubt()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def attend(self, *, processes: bool) -> None:
        """Say whether processes are looked at here, from now on, or memory alone, for which the driver does less.

        Whoever has not said it looks at processes. They may be old by `RARELY` where nobody does.
        """
        lists = 2.0 * self._wanted.memory
        wanted = self._wanted._replace(lists=lists if processes else max(RARELY, lists))
        if wanted != self._wanted:
            self._wanted, self._check_at = wanted, 0.0

    def close(self) -> None:
        """Let go of the board. A later look opens it again."""
        if self._reader is not None:
            self._reader.close()
        if self._report_files is not None:
            self._report_files.close()
        if self._place is not None:
            self._place.close()
        self._place = self._reader = self._report_files = None

    @property
    def passed_over(self) -> str:
        """Why the board is not where it should be, in words for an administrator; empty when it is."""
        return self._place.passed_over if self._place is not None else ""

    def look(self) -> Look:
        """Look now, without waiting for anything.

        Returns:
            What was last published, and whether the collector is missed. Before anything was published it is a
            snapshot with an `error` that says so.

        Raises:
            MonitorError: the board's directory or a file in it is not ours or cannot be written, or no process can be
                started. A later look may work.
        """
        seen = self._open().look()
        if self._place is not None and self._doubt.tries(seen, time.monotonic()):
            with contextlib.suppress(MonitorError, OSError):  # that it cannot be tried is no error of a look
                start(self._options, self._place)
        if seen.message is NOTHING and seen.stale_since is not None and (reason := self._reason()):
            return replace(seen, message=Message(0, Snapshot(time=0.0, error=reason).to_json(), Parser()))
        return seen

    def wait(self, seconds: float = 5.0) -> Look:
        """Look until something was published by a collector that is there, or the time is over.

        Args:
            seconds: how long at most.

        Raises:
            MonitorError: as `look`.
        """
        end = time.monotonic() + seconds
        while True:
            seen = self.look()
            if (seen.age is not None and seen.stale_since is None) or time.monotonic() > end:
                return seen
            time.sleep(0.02)

    def history(self) -> History:
        """Return what was used of each GPU in the last hour, as far as somebody looked.

        Raises:
            MonitorError: as `look`.
        """
        return self._open().history()

    def reports(self) -> tuple[Report, ...]:
        """Read what other kernels say of themselves.

        Raises:
            MonitorError: as `look`.
        """
        self._open()
        return self._report_files.read() if self._report_files is not None else ()

    def ensure(self) -> None:
        """See to it that there is a collector, and let it know that somebody looks. Looks do that.

        Raises:
            MonitorError: as `look`.
        """
        place = self._placed()
        try:
            fd = place.open(LOCK, os.O_RDWR | os.O_CREAT)
            try:
                os.utime(fd)
                lockfile.want(fd, self._wanted)
                needed = begin(place, fd)
            finally:
                os.close(fd)
            if needed:
                start(self._options, place)
        except OSError as error:
            raise MonitorError(f"no collector could be started in {place.path} ({error.strerror}).") from error

    def _placed(self) -> BoardDirectory:
        """Return the directory, found anew now and then: a login brings a better one, and a driver other GPUs."""
        place, now = self._place, time.monotonic()
        if place is not None and place.is_there():
            if now < self._place_at:
                return place
            new = BoardDirectory()
            if new.same(place):
                place.passed_over = new.passed_over
                new.close()
                new = place
        else:
            new = BoardDirectory()
        self._place_at = now + PLACE_EVERY
        if new is not place:
            try:
                report_files = AllReportFiles(new)
            except BaseException:
                new.close()
                raise
            self._reader = self._reader or Reader(new)
            self._reader.move(new)
            if self._report_files is not None:
                self._report_files.close()
            self._report_files, self._place = report_files, new
            if place is not None:
                place.close()
        elif self._report_files is not None:
            self._report_files.find()
        return new

    def _open(self) -> Reader:
        now = time.monotonic()
        if self._place is None or now >= self._check_at or not self._place.is_there():
            self.ensure()
            self._check_at = now + CHECK_EVERY
        if self._reader is None:
            raise AssertionError("ensure opens it")
        return self._reader

    def _reason(self) -> str:
        """Say why a collector could not begin, if one has left word."""
        if self._place is None:
            return ""
        try:
            fd = self._place.open(LOCK, os.O_RDONLY)
        except FileNotFoundError:
            return ""
        try:
            return lockfile.reason(fd)
        finally:
            os.close(fd)
