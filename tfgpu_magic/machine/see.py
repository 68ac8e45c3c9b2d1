"""The GPUs as one process reads them for all: `snapshot` for who needs them once, `Watch` for who looks repeatedly.

Both start that process, the `collector`, where there is none, and never open the driver: a call into it can hang for
good. It stays as long as somebody watches, and ends within a second of its last answer where nobody does.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.machine import collector_start
from tfgpu_magic.machine.board import history, viewers
from tfgpu_magic.machine.board.cgroup_limits import with_cgroup_limits
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.machine_board import MachineBoard
from tfgpu_magic.machine.board.report_files import ReportFiles
from tfgpu_magic.machine.board.snapshot_file import NOTHING, SNAPSHOT, STALE_AFTER, SnapshotReader, own_cgroup
from tfgpu_magic.machine.board.viewers import LINGER, LOCK, READING_TIMEOUT, TAKEN
from tfgpu_magic.machine.collector_start import is_taken
from tfgpu_magic.machine.driver.schedule import ASLEEP, WantedIntervals

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgpu_magic.machine.board.history import History
    from tfgpu_magic.machine.board.snapshot_file import Published, Reading

DRIVER_TIMEOUT = 15.0
"""Seconds to wait where a snapshot is required, as before a policy is judged, and not only welcome."""
SHOW_LATE_FOR = 30.0
"""Seconds for which a snapshot that is too old is shown, while a new one is on its way."""
CHECK_EVERY = 0.5
"""Seconds between two of a viewer's checks that there is a collector, which also see from them that it has viewers."""
PLACE_EVERY = 5.0
"""Seconds between two checks that the board's directory is still the best, and still of the same GPUs."""
UNWATCHED_LISTS_EVERY = 10.0
"""Seconds between two lists of processes, at the least, while no viewer shows them."""

_HELD_FOR = 0.5  # seconds: who only tries the lock holds it for less
_EARLY = 1.0  # seconds: a line may have begun the reading that it will want, before it imported what it needs
_SERVICE_AGE = 1.5  # seconds: a service reads every second, and nobody can ask it
_SLOW_AFTER = 3.0  # seconds: a machine that is busy may take one to start a process, and that is no driver's fault
_FIRST, _LONGEST = 1.0, 15.0  # seconds between two of a viewer's attempts to start a collector
_LIMITS_SINCE = 615  # the first driver with limits by cgroup


def look(timeout: float = 1.5) -> Snapshot:
    """Read all GPUs now, within `timeout`.

    Args:
        timeout: seconds to wait, the start of a process included.

    Returns:
        The snapshot; its `error` says in words why there is none. Nothing that the driver does raises. A driver that
        takes longer is still asked: a later look gets its snapshot.
    """
    return snapshot(timeout)


def snapshot(wait: float = DRIVER_TIMEOUT, *, late: float = 0.0, slow: Callable[[], None] | None = None) -> Snapshot:
    """Return all GPUs as a reading finds them that begins now.

    If somebody watches the GPUs, that collector reads them. Otherwise a collector is started, reads them, and ends.
    Thread-safe.

    Args:
        wait: seconds to wait, the start of a process included.
        late: seconds; where the driver is too slow, what a collector has published may be as old as that.
        slow: called once where it takes more than three seconds.

    Returns:
        The snapshot; its `error` says in words why there is none. Nothing that the driver does raises. A driver that
        takes longer is still asked, and a later call gets its snapshot.
    """
    with contextlib.ExitStack() as stack:
        place: BoardDirectory | None = None
        with contextlib.suppress(MonitorError, OSError):
            place = stack.enter_context(BoardDirectory())
        question = _Question(place, stack.enter_context(contextlib.closing(MachineBoard())))
        try:
            found = question.wait(wait, slow)
        except OSError as error:  # no memory or no processes left
            return _error_snapshot(f"NVML was not asked: no process could be started ({error.strerror}).")
        if found is None:
            return question.late_answer(wait, late)
        _late.clear()
        return found


class _Question:
    """One question for a snapshot, which what a collector publishes answers, or one that is started for it.

    Without a `place` nothing can be written, and a process answers that publishes nothing.
    """

    def __init__(self, place: BoardDirectory | None, machine: MachineBoard) -> None:
        self._begun, self._place, self._machine = time.time(), place, machine
        self._reader = None if place is None else SnapshotReader(place)
        self._asked, self._ask_at, self._free_at = 0, 0.0, time.monotonic()
        self._before = latest = collector_start.latest  # it may have answered too late for who has asked it
        self._start: collector_start.Start | None = None
        if latest is not None and not latest.heard and latest.begun >= self._begun - _EARLY:
            self._start, latest.heard = latest, True

    def wait(self, seconds: float, slow: Callable[[], None] | None) -> Snapshot | None:
        """Return the snapshot once it is there; None after these seconds."""
        begun = time.monotonic()
        while (found := self._read_or_ask()) is None:
            waited = time.monotonic() - begun
            if waited >= seconds:
                return None
            if slow is not None and waited > _SLOW_AFTER:
                slow()
                slow = None
            if self._start is None:
                time.sleep(0.005)
            else:
                self._start.wait(min(0.01, seconds - waited))
        return found

    def late_answer(self, waited: float, most: float) -> Snapshot:
        """Return an answer that came too late, or one of at most so many seconds; else why there is none."""
        first, missed = tuple(_late) or (self._begun, float("inf"))
        _late[:] = self._begun if self._begun - missed > SHOW_LATE_FOR else first, self._begun
        found = [one.snapshot for one in (self._machine.read(), self._read_published()) if one is not None]
        if self._before is not None and self._before.has_ended:
            found.append(_answer_of(self._before))
        now = time.time()
        oldest = now - SHOW_LATE_FOR
        told = [one for one in found if not one.error and one.time >= max(oldest, min(missed, now - most))]
        if told:
            old = max(told, key=lambda one: one.time)
            age = f"{max(1.0, now - old.time):.0f}"
            note = f"These figures are {age} s old: the driver is slow to answer."
            return with_cgroup_limits(old._replace(notes=(*old.notes, note)))
        if waited >= DRIVER_TIMEOUT or not is_still_asked():
            return _hang_snapshot(max(waited, DRIVER_TIMEOUT))
        return _error_snapshot(
            f"NVML did not answer within {waited:g} s. A driver that nothing keeps awake takes some seconds "
            "to start, and it is still being asked: say it again. nvidia-smi shows whether it hangs."
        )

    def _read_or_ask(self) -> Snapshot | None:
        """Return the snapshot if it is there; else ensure that somebody is asked."""
        machine = self._machine.read()
        if machine is not None and machine.stale_since is not None:
            return None  # the service hangs, and who asks the driver beside it would, too
        if (
            machine is not None
            and machine.snapshot.time >= self._begun - _SERVICE_AGE
            and machine.snapshot.error != ASLEEP
        ):
            return with_cgroup_limits(machine.snapshot)
        published = self._read_published()
        if published is not None and self._is_answer(published):
            return with_cgroup_limits(published.snapshot)
        if self._start is not None and self._start.has_ended:
            start, self._start = self._start, None
            if start.reply != TAKEN:
                return _answer_of(start)
        return self._ask(published) if self._start is None else None

    def _read_published(self) -> Published | None:
        with contextlib.suppress(MonitorError):
            return self._reader.read_published() if self._reader is not None else None
        return None

    def _is_answer(self, published: Published) -> bool:
        """Return whether what is published answers, and is true of the GPUs as this process sees them."""
        answers = 0 < self._asked <= published.asked
        return answers and not published.snapshot.error and _is_of_use(published)

    def _ask(self, published: Published | None) -> Snapshot | None:
        """Ask the collector, or start one; return a snapshot only to say that it hangs for good."""
        taken = False
        try:
            if self._place is not None:
                taken = is_taken(self._place)
                if not taken or time.monotonic() >= self._ask_at:
                    touched, self._ask_at = self._place.touch(viewers.ASKED), time.monotonic() + CHECK_EVERY
                    self._asked = self._asked or touched  # a reading that began since then answers
        except (MonitorError, OSError):  # in a read-only container the answer alone counts
            self._place = self._reader = None
        if self._place is not None and not taken:
            self._free_at = time.monotonic()
            self._start = collector_start.start(self._place)
        elif self._place is None or (published is not None and not _is_of_use(published)):
            self._start = collector_start.latest if collector_start.is_pending() else collector_start.start(None)
        elif self._is_hanging():
            return _error_snapshot("NVML does not answer: an earlier call hangs in the driver. A reboot may be needed.")
        return None

    def _is_hanging(self) -> bool:
        """Return whether a process has the lock, and has shown no sign of life for longer than a reading may take."""
        place = self._place
        if place is None or time.monotonic() - self._free_at < _HELD_FOR:
            return False
        sign = max(map(place.touch_time, (LOCK, SNAPSHOT))) / 1e9
        return time.time() - sign > READING_TIMEOUT + STALE_AFTER


_late: list[float] = []
"""When the first and the last question in a row began that were answered too late; empty if the last one was not."""


def is_still_asked() -> bool:
    """Return whether a driver that was too slow is still being asked, so that a later snapshot may succeed."""
    return bool(_late) and 0 <= time.time() - _late[0] < DRIVER_TIMEOUT


def _answer_of(start: collector_start.Start) -> Snapshot:
    """Return the snapshot that a collector has answered; its `error` says why there is none."""
    try:
        return Snapshot.from_json(start.reply)
    except ValueError:
        if time.time() - start.begun >= start.reading_timeout:
            return _hang_snapshot(start.reading_timeout)
        why = (start.failure.strip().splitlines() or ["it was killed"])[-1]
        return _error_snapshot(f"NVML gave no answer: the process that asked it ended without one ({why}).")


def _is_of_use(published: Published) -> bool:
    """Return whether a collector sees the GPUs, and what this process would: a driver may limit them by cgroup."""
    if published.snapshot.error not in (None, ASLEEP):  # it may lack the library
        return False
    version = (published.snapshot.driver or "0").partition(".")[0]
    return published.cgroup == own_cgroup() or not version.isdecimal() or int(version) < _LIMITS_SINCE


def _hang_snapshot(waited: float) -> Snapshot:
    return _error_snapshot(
        f"NVML did not answer within {waited:.0f} s: the driver hangs, or takes longer to start. Try nvidia-smi."
    )


def _error_snapshot(error: str) -> Snapshot:
    return Snapshot(time=time.time(), error=error)


class Watch:
    """The GPUs as they are from second to second, for a viewer that looks repeatedly.

    Every look costs microseconds, however many viewers there are: one process asks the driver for all of the machine,
    where a service does so, else for all of the user's. The latter is started by the first look, started again when it
    was killed, and ends when there was no look for a while. What reads the board raises `MonitorError`, as `read`. Not
    thread-safe.

    Args:
        linger: seconds that a collector stays after the last look, if it is started here.
        patience: seconds that a reading may take, until a collector that is started here gives up.
        every: seconds between two readings that are wanted here; the viewer that wants them most often decides.

    Example:
        >>> with Watch() as watch:  # doctest: +SKIP
        ...     used = [gpu.used for gpu in watch.wait().snapshot.gpus]
    """

    def __init__(self, *, linger: float = LINGER, patience: float = READING_TIMEOUT, every: float = 1.0) -> None:
        self._linger, self._patience = linger, patience
        self._wanted = WantedIntervals(every, 2.0 * every)
        self._machine = MachineBoard()
        self._place: BoardDirectory | None = None
        self._reader: SnapshotReader  # this and the next are there as long as the place is
        self._report_files: ReportFiles
        self._check_at = self._place_at = self._start_at = 0.0
        self._start: collector_start.Start | None = None
        self._failures = 0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show_processes(self, *, processes: bool) -> None:
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
            self._place.close()
        self._machine.close()
        self._place = None

    @property
    def why_not_best(self) -> str:
        """Why the board is not in the best directory, in words for an administrator; empty when it is."""
        return self._place.passed_over if self._place is not None else ""

    def read(self) -> Reading:
        """Read the board now, without waiting for anything.

        Returns:
            What was last published, and whether the collector is missed. Before anything was published it is a
            snapshot with an `error` that says so.

        Raises:
            MonitorError: the board's directory or a file in it is not the user's or cannot be written, or no process
                can be started. A later look may work.
        """
        machine = self._machine.read()
        self._open_directory()
        if machine is not None:
            return machine._replace(snapshot=with_cgroup_limits(machine.snapshot))
        seen, left = self._reader.read(), self._machine.last_reading
        if seen.age is not None and seen.stale_since is None:
            self._failures = 0
        trouble = self._start.failure if self._start is not None else ""
        if trouble and seen.snapshot is NOTHING and seen.stale_since is not None:
            return seen._replace(snapshot=Snapshot(time=0.0, error=trouble))
        # Until the own collector has read something, what the service has left is the latest.
        if left is not None and (seen.age is None or seen.stale_since) and left.snapshot.time > seen.snapshot.time:
            seen = left
        return seen._replace(snapshot=with_cgroup_limits(seen.snapshot))

    def wait(self, seconds: float = 5.0) -> Reading:
        """Look until a living collector has published something, or the time is over.

        Args:
            seconds: the longest wait.
        """
        end = time.monotonic() + seconds
        while True:
            seen = self.read()
            if (seen.age is not None and seen.stale_since is None) or time.monotonic() > end:
                return seen
            time.sleep(0.02)

    def history(self) -> History:
        """Return what was used of each GPU in the last hour, as far as there were viewers."""
        place = self._open_directory()
        return self._machine.history() or history.read_history(place)

    @property
    def report_files(self) -> ReportFiles:
        """The kernels' reports."""
        self._open_directory()
        return self._report_files

    def _ensure_collector(self) -> BoardDirectory:
        """Ensure that there is a collector, and note that it has a viewer; where a service is read, there is one."""
        place = self._find_directory()
        if self._machine.read() is not None:
            return place
        try:
            viewers.want(place, self._wanted)
            if is_taken(place):
                return place
            if time.monotonic() >= self._start_at:
                self._start_at = time.monotonic() + min(_LONGEST, _FIRST * 2.0 ** min(self._failures, 10))
                self._failures += 1
                self._start = collector_start.Start(place, self._linger, self._patience)
        except OSError as error:
            raise MonitorError(f"no collector could be started in {place.path} ({error.strerror}).") from error
        return place

    def _find_directory(self) -> BoardDirectory:
        """Return the directory, searched again now and then: another may become usable, and other GPUs visible."""
        before, now = self._place, time.monotonic()
        there = before is not None and before.is_there()
        if before is not None and there and now < self._place_at:
            return before
        place = BoardDirectory()
        self._place_at = now + PLACE_EVERY
        if before is not None and there and place.is_same(before):
            before.passed_over = place.passed_over
            place.close()
            return before
        if before is None:
            self._reader = SnapshotReader(place)
        else:
            self._reader.place = place
            before.close()
        self._report_files, self._place = ReportFiles(place), place
        return place

    def _open_directory(self) -> BoardDirectory:
        now = time.monotonic()
        if self._place is None or now >= self._check_at or not self._place.is_there():
            place = self._ensure_collector()
            self._check_at = now + CHECK_EVERY
            return place
        return self._place
