"""Counts for how long processes hold memory without using the GPU, and how much that is. Pure; `unused_file` keeps it.

A process uses a GPU when its kernels run there, by the driver's samples of each process. Where the driver has none, a
GPU on which nothing runs is used by nobody, and one with a single process by that; of others it is not known.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfgpu_magic.monitor.snapshot import Gpu, Snapshot

AFTER = 60.0
"""Seconds without use from which on memory counts as held without use, and does so from the last use on."""
LONGEST_GAP = 180.0
"""Seconds between two readings of the lists beyond which it is not known what was used in between."""
TRUSTED_FOR = 15.0
"""Seconds in which no pid is reused by another process on the same GPU."""
SAVE_EVERY = 20.0
"""Seconds between two records while nothing begins to count or ends: hours grow, and other processes come and go."""
TRUE_FOR = 60.0
"""Seconds of which a record may be older than a reading and still tell what is not used."""
DAYS = 8
"""Days of which hours are kept: a week, and the day that is about to begin."""

_HOUR = 3600


class Holder(NamedTuple):
    """A process that holds memory, as it is read once.

    Attributes:
        began: when it began (`pids.began`).
        name: the path of its notebook, or what it is called; empty for other users' processes, of which no hours are
            kept.
    """

    began: int
    name: str


class Line(NamedTuple):
    """What is recorded of a process on a GPU.

    Attributes:
        began: as in `Holder`; 0 where the pid is of another namespace.
        name: as in `Holder`.
        held: bytes; None where the driver does not tell.
        since: since when it has not used the GPU, in seconds since the epoch; None while it does, or that is not known.
        counted: whether that is longer than `AFTER`.
    """

    began: int
    name: str
    held: int | None
    since: float | None = None
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Unused:
    """What a process holds without use, for its row.

    Attributes:
        since: since when it has not used the GPU, in seconds since the epoch; None where it uses it, has used it less
            than `AFTER` ago, or that is not known.
        today: how much it, and others of its name before it, have so held on this GPU since midnight, in byte-hours.
        week: the same since Monday.
    """

    since: float | None = None
    today: int = 0
    week: int = 0


Lines = dict[str, dict[int, Line]]
Days = dict[str, dict[str, dict[int, int]]]


@dataclass(frozen=True, slots=True)
class Record:
    """What was counted, as it is kept. GPUs go by their UUIDs, and by their labels where they have none.

    Attributes:
        time: until when, in seconds since the epoch.
        lines: the processes by GPU and pid.
        days: byte-seconds by GPU, name and day, which is an ordinal of `datetime.date` in local time.
    """

    time: float = 0.0
    lines: Lines = field(default_factory=dict)
    days: Days = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps({"time": self.time, "lines": self.lines, "days": self.days}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Parse what `to_json` returned.

        Raises:
            ValueError: the text is not a record.
        """
        try:
            fields = json.loads(text)
            lines = {
                gpu: {int(pid): Line(*line) for pid, line in rows.items()} for gpu, rows in fields["lines"].items()
            }
            days = {
                gpu: {name: {int(day): int(size) for day, size in of.items()} for name, of in names.items()}
                for gpu, names in fields["days"].items()
            }
            return cls(float(fields["time"]), lines, days)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a record: {error}") from error

    def unused(self, now: float) -> dict[tuple[str, int], Unused]:
        """Return what is held without use, by GPU and pid, of processes of which there is something to tell.

        Args:
            now: when the lists were read that it is told with, in seconds since the epoch.
        """
        today = _day(now)
        monday = today - (today - 1) % 7  # the ordinal 1 is a Monday
        fresh = now - self.time <= TRUE_FOR
        found = {}
        for gpu, rows in self.lines.items():
            names = {name: _sums(days, today, monday) for name, days in self.days.get(gpu, {}).items()}
            for pid, line in rows.items():
                since = line.since if fresh and line.counted else None
                hours = names.get(line.name, (0, 0))
                if since is not None or hours != (0, 0):
                    found[gpu, pid] = Unused(since, *hours)
        return found


class Ledger:
    """The count, reading by reading.

    Args:
        past: what an earlier collector has recorded, which is continued.
    """

    def __init__(self, past: Record | None = None) -> None:
        past = past or Record()
        self._time, self._lines, self._days = past.time, past.lines, past.days
        self._continues = True  # the processes are those of the record, if they began when those did
        self._interval: tuple[tuple[int, float], ...] = ()  # since the reading before
        self._size, self._counting = _sizes(self._lines)
        self._news, self._saved_at = False, 0.0

    def record(self) -> Record:
        """Return what was counted so far, as it is now."""
        first = _day(self._time) - DAYS
        self._days = {
            gpu: {name: kept for name, of in names.items() if (kept := {d: s for d, s in of.items() if d > first})}
            for gpu, names in self._days.items()
        }
        days = {gpu: {name: dict(of) for name, of in names.items()} for gpu, names in self._days.items()}
        return Record(self._time, {gpu: dict(rows) for gpu, rows in self._lines.items() if rows}, days)

    def step(
        self,
        snapshot: Snapshot,
        about: Callable[[int], Holder | None],
        quiet: Callable[[], Mapping[int, float]] = dict,
    ) -> bool:
        """Count until a reading of the lists.

        Args:
            snapshot: the reading; without lists of its own it changes nothing.
            about: reads of a process what `Holder` has; None where its pid is of another namespace, or it has ended.
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
        idle = quiet() if gap > LONGEST_GAP and self._size else {}
        self._interval = tuple(_by_day(before, now)) if self._size else ()
        known, self._lines = self._lines, {gpu.uuid or gpu.label: {} for gpu in snapshot.gpus if gpu.listed}
        listed = {gpu.label: (gpu, gpu.uuid or gpu.label) for gpu in snapshot.gpus if gpu.listed}
        crowd = Counter(row.gpu for row in snapshot.processes if row.utilisation is None)
        size = counting = 0
        changed = arrived = False
        for row in snapshot.processes:
            if row.gpu not in listed or row.kind == "G":
                continue
            gpu, key = listed[row.gpu]
            pid = row.pid
            line = known[key].get(pid) if key in known else None
            holder: Holder | None = None
            if line is None or verify:
                holder = about(pid) or Holder(0, "")
                line = line if line and line.began == holder.began else None
            if line is not None and not seen and idle.get(pid, math.inf) > before:
                line = None  # nobody saw what it did
            use = row.utilisation if row.utilisation is not None else _use(gpu, crowd[row.gpu])
            if line is None:
                arrived, holder = True, holder or about(pid) or Holder(0, "")
                fresh = Line(*holder, row.held, now if use == 0 else None)
            else:
                fresh = self._count(key, line, row.held, use, now)
            self._lines[key][pid] = fresh
            size, counting = size + 1, counting + fresh.counted
            changed = changed or fresh.counted != (line is not None and line.counted)
        self._time, self._continues = now, False
        changed = changed or counting != self._counting
        self._news = self._news or arrived or size != self._size or counting > 0
        self._size, self._counting = size, counting
        return self._save(now, changed=changed)

    def _count(self, gpu: str, line: Line, held: int | None, use: int | None, now: float) -> Line:
        """Return a process's next line, and add what it has held without use since the one before."""
        began, name, before, since, counted = line
        if use != 0:
            return line if since is None and before == held else Line(began, name, held)
        start = self._time if since is None else since
        counts = now - start >= AFTER
        if counts and name and before:
            of = self._days.setdefault(gpu, {}).setdefault(name, {})
            for day, seconds in self._interval if counted else _by_day(start, now):
                of[day] = of.get(day, 0) + round(before * seconds)
        same = since is not None and before == held and counted == counts
        return line if same else Line(began, name, held, start, counts)

    def _save(self, now: float, *, changed: bool) -> bool:
        """Tell whether the record is to be kept: at once when something begins to count or ends, else now and then."""
        saves = changed or (self._news and not 0 <= now - self._saved_at < SAVE_EVERY)
        if saves:
            self._news, self._saved_at = False, now
        return saves


def _use(gpu: Gpu, count: int) -> int | None:
    """Return by how many percent each of so many processes uses a GPU, where the driver does not tell them apart."""
    return gpu.utilisation if gpu.utilisation == 0 or count == 1 else None


def _sizes(lines: Lines) -> tuple[int, int]:
    """Return how many processes there are, and of how many of them hours count."""
    return (
        sum(len(rows) for rows in lines.values()),
        sum(line.counted for rows in lines.values() for line in rows.values()),
    )


def _sums(days: Mapping[int, int], today: int, monday: int) -> tuple[int, int]:
    """Return the byte-hours of today and of the days since Monday."""
    return days.get(today, 0) // _HOUR, sum(size for day, size in days.items() if monday <= day <= today) // _HOUR


def _day(time: float) -> int:
    return datetime.fromtimestamp(time).date().toordinal()


def _by_day(start: float, end: float) -> Iterator[tuple[int, float]]:
    """Divide a time into its days, each with its seconds."""
    while start < end:
        day = _day(start)
        midnight = datetime.combine(date.fromordinal(day + 1), datetime.min.time()).timestamp()
        yield day, min(end, midnight) - start
        start = midnight
