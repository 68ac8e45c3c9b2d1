"""The file in which a collector publishes what it has read: JSON, replaced whole, and touched while it lives.

Its first line says who has read what of the machine, and when it will be read again; the second is the `Snapshot`. The
time of the file is the collector's last sign of life. A reader takes a file that is whole or none, waits for nobody,
and writes nothing. Environments with different versions of this package share it: a later version adds fields, and an
earlier one passes over what it does not know.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.snapshot import Process, Snapshot
from tfgpu_magic.machine.board.directory import view_id
from tfgpu_magic.machine.owners.pids import read_text, start_time

if TYPE_CHECKING:
    from typing import Any

    from tfgpu_magic.machine.board.directory import BoardDirectory

VERSION = 1
"""The version of the file's fields. A file of another one is none."""
SNAPSHOT = "snapshot"
"""The file's name."""
STALE_AFTER = 2.5
"""Seconds after which a collector that should give a sign every second is missing."""
MOST_PROCESSES = 4096
"""How many processes are told apart at the most."""
LARGEST = 2**24
"""The largest file, in bytes; what is longer is not read."""

_FIRST_LINE = 1024  # bytes, at the most


class Published(NamedTuple):
    """What a file says. Times are in seconds since the epoch.

    Attributes:
        sequence: a number that rises from reading to reading.
        due: when the collector intends to read again.
        asked: the time of the last question, in nanoseconds, that the reading answers.
        pid: the collector's process.
        began: when that began (`pids.start_time`).
        view: what it sees of the machine (`directory.view_id`).
        cgroup: a number that differs from cgroup to cgroup: limits of the driver hold for that of the collector.
        failures: how many collectors in a row, this one included, could not read the GPUs.
        snapshot: the reading.
        beat: when the collector last gave a sign.
    """

    sequence: int = 0
    due: float = 0.0
    asked: int = 0
    pid: int = 0
    began: int = 0
    view: int = 0
    cgroup: int = 0
    failures: int = 0
    snapshot: Snapshot = Snapshot(time=0.0)
    beat: float = 0.0

    def to_bytes(self) -> bytes:
        """Return the file's content, which is all but the beat."""
        fields = {"version": VERSION} | {name: getattr(self, name) for name in _HEAD}
        return f"{json.dumps(fields)}\n{self.snapshot.to_json()}\n".encode()


_HEAD: dict[str, Any] = {name: type(value) for name, value in Published._field_defaults.items() if name != "snapshot"}
del _HEAD["beat"]
NOTHING = Snapshot(time=0.0, error="The GPUs are being asked for the first time.")
"""What is seen where nothing was published yet."""


class Reading(NamedTuple):
    """What a viewer sees at one time.

    Attributes:
        snapshot: what was published last; the same object as long as it is the same reading.
        sequence: the reading's number, which rises; 0 where nothing was published.
        age: seconds since the GPUs were read; None where they never were.
        stale_since: if the collector is missing, since when, in seconds since the epoch: its last sign, or the time
            when this viewer began; if it is alive and late with a reading, the time of the last one. Else None.
        every: seconds between this reading and the next one: more than is wanted where the driver is slow.
    """

    snapshot: Snapshot = NOTHING
    sequence: int = 0
    age: float | None = None
    stale_since: float | None = None
    every: float = 0.0


class SnapshotWriter:
    """The publisher. Its maker ensures that there is only one. It continues what an earlier one left.

    Args:
        place: where the file is.

    Attributes:
        past: what the earlier one published last; None where there is nothing.
        published: what this one has published last.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self._place = place
        self.past: Published | None = None
        with contextlib.suppress(MonitorError):  # what is not ours is replaced
            self.past = SnapshotReader(place).read_published()
        pid = os.getpid()
        self.published = Published(
            sequence=self.past.sequence if self.past else time.time_ns() // 1000,
            pid=pid,
            began=start_time(pid) or 0,
            cgroup=own_cgroup(),
        )

    def publish(self, snapshot: Snapshot, **more: Any) -> None:
        """Write a snapshot for viewers.

        Args:
            snapshot: what was read.
            more: further fields of `Published`.

        Raises:
            OSError: it cannot be written; viewers still find what was there before.
            MonitorError: something else is in the way.
        """
        sequence = self.published.sequence + 1
        self._write(self.published._replace(sequence=sequence, snapshot=_limit_rows(snapshot), view=view_id(), **more))

    def beat(self, due: float) -> None:
        """Write that the collector is alive, and has nothing newer than what it published.

        Args:
            due: when it intends to publish again, in seconds since the epoch.

        Raises:
            OSError: it cannot be written.
            MonitorError: something else is in the way.
        """
        if not self.published.snapshot.time:  # what another one has left is not true again
            return
        seen = view_id()  # a device may come later
        if due > self.published.due + 1.0 or seen != self.published.view or not self._place.touch_time(SNAPSHOT):
            self._write(self.published._replace(due=due, view=seen))
        else:
            self._place.touch(SNAPSHOT)

    def end(self) -> None:
        """Write that the collector has ended, so that no viewer waits for it."""
        with contextlib.suppress(OSError, MonitorError):
            fd = self._place.open(SNAPSHOT, os.O_RDWR)
            os.utime(fd, (0, 0))
            os.close(fd)

    def _write(self, published: Published) -> None:
        os.close(self._place.rewrite(SNAPSHOT, published.to_bytes()))
        self.published = published


class SnapshotReader:
    """A reader of the file. It never waits, and writes nothing.

    Args:
        place: where the file is, or will be.

    Attributes:
        place: the same; until something is published at another place, the last reading stays.
        published: what was found last; None where nothing was.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self.place = place
        self._head, self.published = b"", None  # type: tuple[bytes, Published | None]
        self._since = time.time()  # a collector is expected from now on

    def read(self) -> Reading:
        """Read the file now. While it is missing or incomplete, return the last reading.

        Raises:
            MonitorError: the file is not ours, or cannot be opened.
        """
        self.published = one = self.read_published() or self.published
        now = time.time()
        if one is None:
            return Reading(stale_since=None if now - self._since < STALE_AFTER else self._since)
        since = None
        if abs(now - one.beat) >= STALE_AFTER:
            since = max(one.beat, one.snapshot.time)
        elif now > one.due + STALE_AFTER:
            since = one.snapshot.time
        read = one.snapshot.time
        return Reading(one.snapshot, one.sequence, now - read, since, max(0.0, one.due - read))

    def read_published(self) -> Published | None:
        """Return what the file says; None if there is none, or none that is whole and of this version.

        Raises:
            MonitorError: as `read`.
        """
        try:
            fd = self.place.open(SNAPSHOT, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            beat = os.fstat(fd).st_mtime
            head = file.readline(_FIRST_LINE)
            if head == self._head and self.published is not None:
                return self.published._replace(beat=beat)
            text = file.read(LARGEST)
        found = _parse(head, text, self.published)
        self._head = head if found else b""
        return found and found._replace(beat=beat)


def _parse(head: bytes, text: bytes, before: Published | None) -> Published | None:
    """Return what a file's lines say; None if they are not whole, or of another version."""
    try:
        fields = json.loads(head)
        if fields["version"] != VERSION or not text.endswith(b"\n"):
            return None
        known = {name: kind(fields[name]) for name, kind in _HEAD.items() if name in fields}
        if before is not None and known["sequence"] == before.sequence:
            return before._replace(**known)
        snapshot = Snapshot.from_json(text.decode())
        return Published(**known, snapshot=snapshot._replace(time=float(snapshot.time)))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def own_cgroup() -> int:
    """Return a number that differs between processes in different cgroups."""
    try:
        return zlib.crc32(read_text("self", "cgroup").encode(errors="surrogateescape"))
    except OSError:
        return 0


def _limit_rows(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with at most `MOST_PROCESSES` rows, and all rows of each user who has few.

    The smaller ones of whoever has many are one row for each GPU, whose pid, -1 less the user's number, is none. So
    nobody hides others' processes by the number of their own.
    """
    rows, most = snapshot.processes, MOST_PROCESSES
    if len(rows) <= most:
        return snapshot
    users: defaultdict[int | None, list[Process]] = defaultdict(list)
    for row in rows:
        users[row.uid].append(row)
    each = most
    while each and sum(min(each, len(theirs)) for theirs in users.values()) > most:
        each = each * 7 // 8
    kept, rest = list[Process](), defaultdict[tuple[str, int | None], list[Process]](list)
    for user, theirs in users.items():
        theirs.sort(key=lambda row: -(row.held or 0))
        kept += theirs[:each]
        for row in theirs[each:]:
            rest[row.gpu, user].append(row)
    for (gpu, user), theirs in rest.items():
        held = [row.held for row in theirs if row.held is not None]
        known = sum(held) if len(held) == len(theirs) else None
        kept.append(Process(gpu, 0 if user is None else -1 - user, "C", known, uid=user))
    order = {gpu.label: index for index, gpu in enumerate(snapshot.gpus)}
    kept.sort(key=lambda row: (order.get(row.gpu, len(order)), row.kind))
    return snapshot._replace(processes=tuple(kept))
