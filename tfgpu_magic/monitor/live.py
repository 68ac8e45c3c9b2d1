"""Reads the board for a viewer, and ensures that a collector writes to it as long as there are viewers."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.model.said import say
from tfgpu_magic.model.snapshot import Snapshot
from tfgpu_magic.monitor.board import lockfile, machine_board
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.lockfile import LINGER, READING_TIMEOUT
from tfgpu_magic.monitor.board.machine_board import MachineBoard
from tfgpu_magic.monitor.board.report_files import ReportFiles
from tfgpu_magic.monitor.board.snapshot_file import LOCK, NOTHING, Look, Published, SnapshotReader
from tfgpu_magic.monitor.board.starting import launch
from tfgpu_magic.monitor.driver.schedule import WantedIntervals

if TYPE_CHECKING:
    from tfgpu_magic.monitor.board.history import History

CHECK_EVERY = 0.5
"""Seconds between two of a viewer's checks that there is a collector, which also see from them that it has viewers."""

PLACE_EVERY = 5.0
"""Seconds between two checks that the board's directory is still the best, and still of the same GPUs."""

UNWATCHED_LISTS_EVERY = 10.0
"""Seconds between two lists of processes, at the least, while no viewer shows them."""

# -c as in `look`, -I and -S as in `probe`. It forks at once, so that its starter has a child for milliseconds only.
_CODE = (
    "'tfgpu_magic: reads the GPUs for all views of this user'; "  # for who looks at the list of processes
    "import os, sys; os.fork() and os._exit(0); linger, patience, *paths = sys.argv[1:]; sys.path += paths; "
    "from tfgpu_magic.monitor.collector import main; main(float(linger), float(patience))"
)


def last() -> Snapshot | None:
    """Return what a collector has published last; None where no board can be read. No collector is started."""
    if (machine := machine_board.published()) is not None:
        return machine.snapshot
    with (
        contextlib.suppress(MonitorError),
        BoardDirectory() as place,
        contextlib.closing(SnapshotReader(place)) as reader,
    ):
        return reader.look().snapshot
    return None


class Live:
    """The GPUs as they are from second to second, for a viewer that looks repeatedly.

    Every look costs microseconds, however many viewers there are: one process asks the driver for all of the machine,
    where a service does so, else for all of the user's. The latter is started by the first look, started again when it
    was killed, and ends when there was no look for a while. What reads the board raises `MonitorError`, as `look`. Not
    thread-safe.

    Args:
        linger: seconds that a collector stays after the last look, if it is started here.
        patience: seconds that a reading may take, until a collector that is started here gives up.
        every: seconds between two readings that are wanted here; the viewer that wants them most often decides.

    Example:
        >>> with Live() as live:  # doctest: +SKIP
        ...     used = [gpu.used for gpu in live.wait().snapshot.gpus]
    """

    def __init__(self, *, linger: float = LINGER, patience: float = READING_TIMEOUT, every: float = 1.0) -> None:
        self._options = (str(linger), str(patience))
        self._wanted = WantedIntervals(every, 2.0 * every)
        self._machine = MachineBoard()
        self._place: BoardDirectory | None = None
        self._reader: SnapshotReader  # this and the next are there as long as the place is
        self._report_files: ReportFiles
        self._check_at = self._place_at = 0.0

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def attend(self, *, processes: bool) -> None:
        """Set whether this viewer shows processes from now on, or memory alone, for which the driver does less.

        By default it shows processes. Where no viewer does, they may be old by `UNWATCHED_LISTS_EVERY`.
        """
        lists = 2.0 * self._wanted.memory
        wanted = self._wanted._replace(lists=lists if processes else max(UNWATCHED_LISTS_EVERY, lists))
        if wanted != self._wanted:
            self._wanted, self._check_at = wanted, 0.0

    def close(self) -> None:
        """Close the board. A later look opens it again."""
        if self._place is not None:
            self._reader.close()
            self._place.close()
        self._machine.close()
        self._place = None

    @property
    def passed_over(self) -> str:
        """Why the board is not in the best directory, in words for an administrator; empty when it is."""
        return self._place.passed_over if self._place is not None else ""

    def look(self) -> Look:
        """Read the board now, without waiting for anything.

        Returns:
            What was last published, and whether the collector is missed. Before anything was published it is a
            snapshot with an `error` that says so.

        Raises:
            MonitorError: the board's directory or a file in it is not the user's or cannot be written, or no process
                can be started. A later look may work.
        """
        machine = self._machine.look()
        own = self._open()
        if machine is not None:
            return machine
        seen, left = own.look(), self._machine.left
        if seen.message is NOTHING and seen.stale_since is not None and (reason := self._reason()):
            return replace(seen, message=Published(0, Snapshot(time=0.0, error=reason).to_json()))
        # Until the own collector has read something, what the service has left is the latest.
        late = seen.age is None or seen.stale_since is not None
        return left if left is not None and late and left.snapshot.time > seen.snapshot.time else seen

    def wait(self, seconds: float = 5.0) -> Look:
        """Look until a living collector has published something, or the time is over.

        Args:
            seconds: the longest wait.
        """
        end = time.monotonic() + seconds
        while True:
            seen = self.look()
            if (seen.age is not None and seen.stale_since is None) or time.monotonic() > end:
                return seen
            time.sleep(0.02)

    def history(self) -> History:
        """Return what was used of each GPU in the last hour, as far as there were viewers."""
        own = self._open()
        return self._machine.history() or own.history()

    @property
    def report_files(self) -> ReportFiles:
        """The kernels' reports."""
        self._open()
        return self._report_files

    def ensure(self) -> None:
        """Ensure that there is a collector, and record that it has a viewer. Looks do that.

        Where the machine's board is read, there is one.

        Raises:
            MonitorError: none can be started.
        """
        place = self._placed()
        if self._machine.look() is not None:
            return
        try:
            fd = place.open(LOCK, os.O_RDWR | os.O_CREAT)
            try:
                os.utime(fd)
                lockfile.want(fd, self._wanted)
                needed = lockfile.begin(place, fd)
            finally:
                os.close(fd)
            if needed:
                launch(_CODE, self._options, place)
        except OSError as error:
            raise MonitorError(
                say("no collector could be started in {path} ({why}).", path=place.path, why=error.strerror)
            ) from error

    def _placed(self) -> BoardDirectory:
        """Return the directory, searched again now and then: another may become usable, and other GPUs visible."""
        before, now = self._place, time.monotonic()
        there = before is not None and before.is_there()
        if before is not None and there and now < self._place_at:
            return before
        place = BoardDirectory()
        self._place_at = now + PLACE_EVERY
        if before is not None and there and place.same(before):
            before.passed_over = place.passed_over
            place.close()
            return before
        if before is None:
            self._reader = SnapshotReader(place)
        else:
            self._reader.move(place)
            before.close()
        self._report_files, self._place = ReportFiles(place), place
        return place

    def _open(self) -> SnapshotReader:
        now = time.monotonic()
        if self._place is None or now >= self._check_at or not self._place.is_there():
            self.ensure()
            self._check_at = now + CHECK_EVERY
        return self._reader

    def _reason(self) -> str:
        """Return why a collector could not begin; an empty text if none has left a reason."""
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
