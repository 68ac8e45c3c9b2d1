"""Finds since when processes hold memory without using the GPU. The collector keeps it on the board.

A process uses a GPU when its kernels run there, by the driver's samples of each process. Where the driver has none, a
GPU on which nothing runs is used by nobody, and one with a single process by that; of others it is not known.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.board.directory import CHECK, checked, whole
from tfgpu_magic.monitor.board.history import write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgpu_magic.model.report import GpuUse
    from tfgpu_magic.model.rows import ProcessRow
    from tfgpu_magic.model.snapshot import Gpu, Snapshot
    from tfgpu_magic.monitor.board.directory import BoardDirectory

NAME = "unused-2"
"""The file's name, with the version of its content."""
LARGEST = 2**22
"""The largest record, in bytes; what is longer is neither written nor read."""
AFTER = 60.0
"""Seconds without use from which on memory counts as held without use, and does so from the last use on."""
LONGEST_GAP = 180.0
"""Seconds between two readings of the lists beyond which it is not known what was used in between."""
TRUSTED_FOR = 15.0
"""Seconds in which no pid is reused by another process on the same GPU."""
SAVE_EVERY = 20.0
"""Seconds between two records while nothing begins to count or ends: other processes come and go."""
TRUE_FOR = 60.0
"""Seconds of which a record may be older than a reading and still tell what is not used."""

_latest: tuple[object, UnusedRecord | None] = None, None
"""The record that was read last, after what its file was."""


class UnusedLine(NamedTuple):
    """What is recorded of a process on a GPU.

    Attributes:
        began: when it began (`pids.began`); 0 where the pid is of another namespace.
        since: since when it has not used the GPU, in seconds since the epoch; None while it does, or that is not known.
        counted: whether that is longer than `AFTER`.
    """

    began: int
    since: float | None = None
    counted: bool = False


UnusedLines = dict[str, dict[int, UnusedLine]]


@dataclass(frozen=True, slots=True)
class UnusedRecord:
    """What was found, as it is kept; a `RowFact`. GPUs go by their UUIDs, and by their labels where they have none.

    Attributes:
        time: until when, in seconds since the epoch.
        lines: the processes by GPU and pid.
    """

    pids: ClassVar[frozenset[int]] = frozenset()
    silent: ClassVar[frozenset[int]] = frozenset()

    time: float = 0.0
    lines: UnusedLines = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps({"time": self.time, "lines": self.lines}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> UnusedRecord:
        """Parse what `to_json` returned.

        Raises:
            ValueError: the text is not a record.
        """
        try:
            fields = json.loads(text)
            lines = {
                gpu: {int(pid): UnusedLine(*line) for pid, line in rows.items()}
                for gpu, rows in fields["lines"].items()
            }
            return cls(float(fields["time"]), lines)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a record: {error}") from error

    def added(
        self,
        gpu: Gpu,
        rows: Sequence[ProcessRow],
        _known: object,
        _uses: Mapping[int, GpuUse | None],
        snapshot: Snapshot,
    ) -> list[ProcessRow]:
        """Return a GPU's rows with since when each holds memory without use, as `RowFact.added`."""
        lines = (
            self.lines.get(gpu.uuid or gpu.label, {})
            if (snapshot.listed_at or snapshot.time) - self.time <= TRUE_FOR
            else {}
        )

        def since(row: ProcessRow) -> float | None:
            line = lines.get(row.pid or 0)
            if line is None or not line.counted or not row.kind or row.utilisation:
                return None
            return line.since if row.began is None or line.began in (0, row.began) else None  # else the pid is reused

        return [row if (told := since(row)) is None else replace(row, unused=told) for row in rows]


class Ledger:
    """What was found, reading by reading.

    Args:
        past: what an earlier collector has recorded, which is continued.
    """

    def __init__(self, past: UnusedRecord | None = None) -> None:
        past = past or UnusedRecord()
        self._time, self._lines = past.time, past.lines
        self._continues = True  # the processes are those of the record, if they began when those did
        self._holding, self._counted = _processes(self._lines)
        self._news, self._saved_at = False, 0.0

    def record(self) -> UnusedRecord:
        """Return what was found so far, as it is now."""
        return UnusedRecord(self._time, {gpu: dict(rows) for gpu, rows in self._lines.items() if rows})

    def step(
        self,
        snapshot: Snapshot,
        began: Callable[[int], int | None],
        quiet: Callable[[], Mapping[int, float]] = dict,
    ) -> bool:
        """Go on to a reading of the lists.

        Args:
            snapshot: the reading; without lists of its own it changes nothing.
            began: reads when a process began; None where its pid is of another namespace, or it has ended.
            quiet: returns since when kernels run no cell, by pid. It is asked after a longer time without readings:
                such a kernel has used nothing meanwhile.

        Returns:
            Whether the record is to be kept now.
        """
        now, before = snapshot.listed_at, self._time
        if now is None or snapshot.error or now == before:
            return False
        gap = now - before
        verify = self._continues or not 0 <= gap <= TRUSTED_FOR
        seen = 0 <= gap <= LONGEST_GAP
        idle = quiet() if gap > LONGEST_GAP and self._holding else {}
        known, self._lines = self._lines, {gpu.uuid or gpu.label: {} for gpu in snapshot.gpus if gpu.listed}
        listed = {gpu.label: (gpu, gpu.uuid or gpu.label) for gpu in snapshot.gpus if gpu.listed}
        crowd = Counter(row.gpu for row in snapshot.processes if row.utilisation is None)
        for row in snapshot.processes:
            if row.gpu not in listed or row.kind == "G":
                continue
            gpu, key = listed[row.gpu]
            line = known.get(key, {}).get(row.pid)
            use = row.utilisation if row.utilisation is not None else _use(gpu, crowd[row.gpu])
            if line is None or verify:
                start = began(row.pid) or 0
                idled = seen or idle.get(row.pid, math.inf) <= before  # else nobody saw what it did
                if line is None or line.began != start or not idled:
                    self._lines[key][row.pid] = UnusedLine(start, now if use == 0 else None)
                    continue
            self._lines[key][row.pid] = _next(line, use, before, now)
        self._time, self._continues = now, False
        return self._save(now)

    def _save(self, now: float) -> bool:
        """Tell whether the record is to be kept: at once when something begins to count or ends, else now and then."""
        holding, counted = _processes(self._lines)
        self._news = self._news or holding != self._holding or bool(counted)
        saves = counted != self._counted or (self._news and not 0 <= now - self._saved_at < SAVE_EVERY)
        self._holding, self._counted = holding, counted
        if saves:
            self._news, self._saved_at = False, now
        return saves


def _next(line: UnusedLine, use: int | None, before: float, now: float) -> UnusedLine:
    """Return a process's next line, from the one at the reading before."""
    began, since, counted = line
    if use != 0:
        return line if since is None else UnusedLine(began)
    if counted:
        return line
    since = before if since is None else since
    return UnusedLine(began, since, now - since >= AFTER)


def _use(gpu: Gpu, count: int) -> int | None:
    """Return by how many percent each of so many processes uses a GPU, where the driver does not tell them apart."""
    return gpu.utilisation if gpu.utilisation == 0 or count == 1 else None


def _processes(lines: UnusedLines) -> tuple[set[tuple[str, int, int]], set[tuple[str, int, int]]]:
    """Return the processes, and those of them that count, each by its GPU, its pid and when it began."""
    found = {(gpu, pid, line.began): line.counted for gpu, rows in lines.items() for pid, line in rows.items()}
    return set(found), {one for one, counted in found.items() if counted}


def keep(place: BoardDirectory, record: UnusedRecord) -> None:
    """Replace the record.

    Raises:
        OSError: it could not be written; the one before stays.
        MonitorError: something else is in its place.
    """
    text = record.to_json().encode()
    if len(text) > LARGEST:
        return
    new = f"{NAME}-new"
    place.remove(new)
    fd = place.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        write(fd, checked(text), 0)
        place.replace(new, NAME)
    finally:
        os.close(fd)


def kept(place: BoardDirectory) -> UnusedRecord | None:
    """Return the record, the same object as long as it is the same; None where there is none, or none that is whole."""
    global _latest
    try:
        fd = place.open(NAME, os.O_RDONLY)
    except (FileNotFoundError, MonitorError):
        return None
    try:
        about = os.fstat(fd)
        seen = about.st_dev, about.st_ino, about.st_mtime_ns
        if seen != _latest[0]:
            _latest = seen, _record(os.pread(fd, CHECK + LARGEST, 0))
        return _latest[1]
    except OSError:
        return None
    finally:
        os.close(fd)


def _record(data: bytes) -> UnusedRecord | None:
    with contextlib.suppress(ValueError):
        return UnusedRecord.from_json((whole(data) or b"").decode())
    return None
