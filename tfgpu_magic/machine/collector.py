"""The one process of a user that asks the driver, for all views and lines: `python -m tfgpu_magic.machine.collector`.

It publishes what it reads, and ends when there are no viewers any more: within a second where only lines asked. A lock
makes it the only one: a second collector ends at once. One that cannot read the GPUs ends after a while too, so that
the next viewer's may try: the first viewer may lack the library. A call into a driver can hang for good; then only this
process hangs, readers find that it is missing, and an alarm ends it where it can be ended. Where it cannot, in the
driver's uninterruptible sleep, it keeps the lock, and no other process hangs beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.history import HISTORY, HistoryWriter
from tfgpu_magic.machine.board.report_files import ReportFiles
from tfgpu_magic.machine.board.snapshot_file import SNAPSHOT, SnapshotWriter
from tfgpu_magic.machine.board.unused import IdleTracker
from tfgpu_magic.machine.board.viewers import (
    ASKED,
    LIBRARIES,
    LINGER,
    LOCK,
    PREFIX,
    PROCESS_NAME,
    READING_TIMEOUT,
    TAKEN,
    newest_view,
    read_wanted,
)
from tfgpu_magic.machine.driver.nvml import NvmlReader
from tfgpu_magic.machine.driver.readings import complete
from tfgpu_magic.machine.driver.schedule import ASLEEP, DriverSleep, Schedule, WantedIntervals
from tfgpu_magic.machine.owners.holders import HolderFacts, Holders, read_users_holder

if TYPE_CHECKING:
    from collections.abc import Iterator

BLIND_FOR, MOST_DOUBLINGS = 20.0, 4
"""Seconds without the GPUs after which a collector ends, and how often they double: five minutes in the end."""
LISTS_WHEN_MOVED = 16 * 2**20
"""The largest change of the bytes in use that does not cause the lists to be read again."""
ASKED_FOR = 5.0
"""Seconds after which a question that no collector has answered is an old one."""
LISTEN_EVERY = 0.02
"""Seconds between two times that a user's collector sees whether somebody asks."""

_PAUSE = 0.5  # seconds between two checks whether a sleeping GPU was woken, or a driver that fails is due


class CollectorConfig(NamedTuple):
    """How a collector runs: by default one of a user's.

    Attributes:
        linger: seconds to stay after the last viewer's look; a collector that stays for ever cannot be asked.
        patience: seconds after which a hanging reading ends this process, by SIGALRM.
        read_holder: reads a process that a driver lists.
        idle_kernels: returns since when kernels run no cell, by pid, as they report in a directory.
        counter: makes what is given each reading of the lists when it has been published, for a directory and what an
            earlier collector has published last there.
        answer: is given the first reading, once it is published or cannot be.
    """

    linger: float = LINGER
    patience: float = READING_TIMEOUT
    read_holder: Callable[[int], HolderFacts] = read_users_holder
    idle_kernels: Callable[[BoardDirectory], Mapping[int, float]] = lambda place: _idle_since_by_pid(place)
    counter: Callable[[BoardDirectory, Snapshot | None], Callable[[Snapshot], object]] = lambda *_: lambda _: None
    answer: Callable[[Snapshot], object] = lambda _: None


def collect(place: BoardDirectory, config: CollectorConfig) -> bool:
    """Be the collector, until there are no viewers or the board is gone.

    Args:
        place: where the board is.
        config: how it runs.

    Returns:
        Whether this process was the collector; False if there is another.

    Raises:
        MonitorError: nothing can be published.
    """
    lock = _lock(place)
    if lock is None:
        return False
    try:
        os.utime(lock)  # a first sign
        _run(place, lock, config)
    finally:
        os.close(lock)
    return True


def _lock(place: BoardDirectory) -> int | None:
    """Take the lock, unless another process holds it for longer than a reader does to see whether it is held."""
    for _ in range(20):
        fd = place.open(LOCK, os.O_RDWR | os.O_CREAT)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if place.has(LOCK, fd):
                return fd
        os.close(fd)
        time.sleep(0.02)
    return None


def _run(place: BoardDirectory, lock: int, config: CollectorConfig) -> None:
    readings, stamp = _Readings(place, config), newest_view(place)
    looked = time.monotonic() - (time.time_ns() - stamp) / 1e9
    readings.begin()
    while place.is_there() and place.has(LOCK, lock) and not readings.fails_for_long(time.monotonic()):
        now = time.monotonic()
        if (touched := newest_view(place)) != stamp:
            looked, stamp = now, touched
        if now - looked > config.linger and not readings.is_asked():
            readings.end()
            return
        with contextlib.suppress(OSError, MonitorError):  # a full disk: viewers find this missing until there is room
            readings.step(now)
        _wait_until(now + readings.seconds_to_next(), readings.is_asked if config.linger < math.inf else None)


def _wait_until(end: float, is_asked: Callable[[], bool] | None) -> None:
    while (left := end - time.monotonic()) > 0 and not (is_asked and is_asked()):
        time.sleep(min(left, LISTEN_EVERY) if is_asked else left)


class _Readings:
    """The readings and their publication, one step at a time."""

    def __init__(self, place: BoardDirectory, config: CollectorConfig) -> None:
        self._reader, self._schedule, self._driver_sleep = _reader(), Schedule(), DriverSleep()
        self._place, self._writer, self._history = place, SnapshotWriter(place), HistoryWriter(place)
        self._patience, self._answer = config.patience, config.answer
        past = self._writer.past
        self._tracker, self._holders = IdleTracker(past and past.snapshot), Holders(config.read_holder)
        self._idle_kernels = partial(config.idle_kernels, place)
        self._count = config.counter(place, past and past.snapshot)
        self._failures = past.failures if past else 0  # of the collectors before
        self._snapshot: Snapshot | None = None
        self._listed: dict[str, int | None] = {}
        asked = place.touch_time(ASKED)
        self._opened, self._asked = False, asked if time.time_ns() - asked > ASKED_FOR * 1e9 else 0
        self._saw_at = time.monotonic()

    def begin(self) -> None:
        """Read for the first time, and answer; raise `MonitorError` where nothing can be published."""
        try:
            self.step(time.monotonic())
        except OSError as error:
            raise MonitorError(f"{self._place.path} cannot be written to ({error.strerror}).") from error
        self._answer(self._writer.published.snapshot)

    def end(self) -> None:
        """Publish that this collector has ended."""
        self._writer.end()
        if self._place.simulated:  # this machine will not come back
            for name in (SNAPSHOT, HISTORY, ASKED, *self._place.list_names(PREFIX), LOCK):
                self._place.remove(name)

    def is_asked(self) -> bool:
        """Return whether somebody needs a reading that has not begun yet."""
        return self._place.touch_time(ASKED) != self._asked

    def step(self, now: float) -> None:
        """Read and publish what is due or asked for, or beat."""
        self._schedule.wanted = self._read_wanted()
        asked = self._place.touch_time(ASKED)
        closed = self._driver_sleep.should_go_on(now) or (not self._opened and self._driver_sleep.is_asleep())
        kind = None if closed else self._schedule.due_kind(now)
        if asked != self._asked:
            self._asked = asked
            kind = "graphics" if self._snapshot is None or kind == "graphics" else "lists"
            self._read(kind, now)
            if closed:
                self._close()
        elif kind is not None:
            self._read(kind, now)
        elif closed and self._driver_sleep.is_asleep():
            self._sleep()
        else:
            self._writer.beat(self._due())

    def fails_for_long(self, now: float) -> bool:
        """Return whether the GPUs could not be read for long: longer, if earlier collectors failed too."""
        if self._snapshot is None or self._snapshot.error in (None, ASLEEP):
            self._saw_at = now
        return now - self._saw_at > BLIND_FOR * 2.0 ** min(self._failures, MOST_DOUBLINGS)

    def seconds_to_next(self) -> float:
        """Return for how many seconds there is nothing to do."""
        return max(0.0, min(self._schedule.next_due() - time.monotonic(), 1.0)) if self._opened else _PAUSE

    def _due(self) -> float:
        return time.time() + self._schedule.next_due() - time.monotonic()

    def _read_wanted(self) -> WantedIntervals:
        """Return what the viewers want; lists too, where what is used of a GPU follows from its processes alone."""
        now = read_wanted(self._place)
        unified = self._snapshot is not None and any(gpu.unified for gpu in self._snapshot.gpus)
        return now._replace(lists=2.0 * now.memory) if unified else now

    def _sleep(self) -> None:
        if self._snapshot is not None and self._snapshot.error == ASLEEP:
            self._writer.beat(time.time() + 1.0)
            return
        self._snapshot = Snapshot(time=time.time(), error=ASLEEP)
        self._writer.publish(self._snapshot, due=time.time() + 1.0, failures=0)

    def _read(self, kind: str, now: float) -> None:
        with _time_limit(self._patience):
            snapshot = read(self._reader, self._snapshot, kind)
            if kind == "memory" and _has_changed(snapshot, self._listed) and self._schedule.may_list(now):
                kind, snapshot = "lists", read(self._reader, snapshot, "lists")
        cost = time.monotonic() - now  # the driver's: /proc is not its time
        if kind != "memory":
            self._listed = {gpu.label: gpu.used for gpu in snapshot.gpus}
            snapshot = self._tracker.step(self._holders.complete(snapshot, now), self._idle_kernels)
        opening, self._opened = not self._opened, snapshot.error is None
        failed = not self._opened
        self._schedule.record(kind, now, cost, opening=opening, failed=failed, absent=snapshot.absent)
        self._snapshot = snapshot
        failures = self._failures + 1 if failed else 0
        self._writer.publish(snapshot, due=self._due(), asked=self._asked, failures=failures)
        with contextlib.suppress(OSError, MonitorError):  # as of the board: when there is room again
            self._history.add(snapshot)
            if kind != "memory":
                self._count(snapshot)
        if kind != "memory" and self._driver_sleep.should_begin(snapshot, now):  # an old list lacks newer processes
            self._close()

    def _close(self) -> None:
        with _time_limit(self._patience):
            self._reader.close()
        self._opened = False


def _idle_since_by_pid(place: BoardDirectory) -> dict[int, float]:
    idle = [one for one in ReportFiles(place).read() if one.busy is False]
    return {one.pid: one.active for one in idle if one.active is not None}


@contextlib.contextmanager
def _time_limit(patience: float) -> Iterator[None]:
    """End this process if the block, which calls a driver, takes longer."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, patience)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _has_changed(snapshot: Snapshot, listed: Mapping[str, int | None]) -> bool:
    """Return whether a GPU's use has changed since its processes were listed, so that they must be listed again.

    Otherwise new memory would look like that of a process that the driver does not list.
    """
    pairs = ((gpu.used, listed.get(gpu.label)) for gpu in snapshot.gpus)
    return any(now is not None and then is not None and abs(now - then) > LISTS_WHEN_MOVED for now, then in pairs)


def read(reader: NvmlReader, before: Snapshot | None, kind: str) -> Snapshot:
    """Ask the driver for a kind of reading, and complete it from the one before."""
    processes, graphics = kind != "memory", kind == "graphics"
    fresh = reader.read(processes=processes, graphics=graphics)
    return complete(fresh, before, processes=processes, graphics=graphics)


def _reader() -> NvmlReader:
    return NvmlReader([folder for folder in os.environ.get(LIBRARIES, "").split(":") if folder])


def read_alone(patience: float) -> Snapshot:
    """Return a reading that is published nowhere, by a process that is no collector.

    Args:
        patience: as `CollectorConfig` has it.
    """
    with _time_limit(patience):
        snapshot = _reader().read()
    return Holders(read_users_holder).complete(snapshot, time.monotonic())


def main(linger: float = LINGER, patience: float = READING_TIMEOUT, *, publishes: bool = True) -> None:
    """Be the collector, and write the first reading to the standard output, or `TAKEN` if there is another.

    Args:
        linger: as `CollectorConfig` has it.
        patience: as `CollectorConfig` has it.
        publishes: whether to be the collector, and not only to answer.
    """
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as name:
        name.write(PROCESS_NAME)
    if publishes:
        try:
            with BoardDirectory() as place:
                if not collect(place, CollectorConfig(linger, patience, answer=lambda first: _reply(first.to_json()))):
                    _reply(TAKEN)
                return
        except MonitorError as error:
            _reply("", str(error))
    _reply(read_alone(patience).to_json())


def _reply(answer: str, why_not: str = "") -> None:
    """Answer the process that started this one, which then waits no longer."""
    with contextlib.suppress(OSError):  # nobody has waited
        print(why_not, end="", file=sys.stderr, flush=True)
        print(answer, end="", flush=True)
    if answer:
        with open(os.devnull, "wb") as nowhere:
            for fd in (1, 2):
                os.dup2(nowhere.fileno(), fd)
        gc.enable()  # which who starts it does without, for speed


if __name__ == "__main__":
    main()
