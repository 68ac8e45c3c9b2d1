"""What was used of each GPU in the last hour, finest in the last ten minutes: two rings in the board's file."""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.board.directory import checked, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgpu_magic.model.snapshot import Snapshot

FINE, COARSE = 600, 300
"""Points in each ring."""
POINT_EVERY = (1.0, 10.0)
"""Seconds between two points of the fine ring, 10 minutes in all, and of the coarse one, 50 minutes in all."""
DEVICES = 128
"""How many GPUs and MIG instances have a history."""

_EARLY = 0.5  # seconds: readings are late by a little, and the next one may be less late
_TABLE = 16384  # bytes for the names of the columns
_UNKNOWN = 2**64 - 1


@dataclass(frozen=True, slots=True)
class History:
    """The bytes used of each GPU, over time.

    Attributes:
        times: seconds since the epoch, rising; about a second apart in the last 10 minutes, about 10 s before.
        used: for each UUID (label, where a GPU has none) as many figures as `times`: bytes, or None when unknown.
    """

    times: tuple[float, ...] = ()
    used: dict[str, tuple[int | None, ...]] = field(default_factory=dict)

    def until(self, end: float) -> History:
        """Return the part before a time."""
        count = bisect_left(self.times, end)
        return History(self.times[:count], {name: figures[:count] for name, figures in self.used.items()})


class Rings:
    """The writer's side: one small write a point. Every point carries a checksum, so that half a point is none.

    Args:
        fd: the board's file, open for writing.
        base: where in it the history begins, in bytes.
        before: the history that an earlier writer left, which is continued.
    """

    def __init__(self, fd: int, base: int, before: History | None = None) -> None:
        self._fd, self._base = fd, base
        self._columns: tuple[str, ...] = ()
        self._count = [0, 0]
        self._last = [0.0, 0.0]
        if before is not None and before.used:
            self._rewrite(tuple(before.used), before)

    def add(self, snapshot: Snapshot) -> None:
        """Add a point, unless it is too early for one.

        Raises:
            OSError: it could not be written.
        """
        now = snapshot.time
        if now < self._last[0]:  # the clock was set back: later points are in the future
            past = read(self._fd, self._base)
            self._rewrite(self._columns, past.until(now))
        if not snapshot.gpus or now - self._last[0] < POINT_EVERY[0] - _EARLY:
            return
        used = {gpu.uuid or gpu.label: gpu.used for gpu in snapshot.gpus[:DEVICES]}
        if not used.keys() <= set(self._columns):
            gone = [name for name in self._columns if name not in used]
            columns = (*used, *gone)[:DEVICES]
            self._rewrite(columns, read(self._fd, self._base))
        point = [used.get(name) for name in self._columns]
        for ring, every in enumerate(POINT_EVERY):
            if now - self._last[ring] >= every - _EARLY:
                self._put(ring, now, point)

    def _put(self, ring: int, now: float, point: Sequence[int | None]) -> None:
        layout = struct.Struct(f"<d{len(point)}Q")
        row = layout.pack(now, *(_UNKNOWN if used is None else used for used in point))
        at = ring * FINE + self._count[ring] % (COARSE if ring else FINE)
        row += struct.pack("<Q", zlib.crc32(row))
        write(self._fd, row, self._base + _TABLE + at * len(row))
        self._count[ring] += 1
        self._last[ring] = now

    def _rewrite(self, columns: tuple[str, ...], before: History) -> None:
        """Start the rings again with these columns, and keep their history."""
        self._columns, self._count, self._last = columns, [0, 0], [0.0, 0.0]
        write(self._fd, _table(()), self._base)  # readers ignore a table that is not whole
        row = len(columns) * 8 + 16
        write(self._fd, bytes(row * (FINE + COARSE)), self._base + _TABLE)
        for index, now in enumerate(before.times):
            point = [before.used[name][index] if name in before.used else None for name in columns]
            fine = index >= len(before.times) - FINE
            if (
                fine
                and now - self._last[0] >= POINT_EVERY[0] - _EARLY
                and before.times[-1] - now < FINE * POINT_EVERY[0]
            ):
                self._put(0, now, point)
            if now - self._last[1] >= POINT_EVERY[1] - _EARLY:
                self._put(1, now, point)
        write(self._fd, _table(columns), self._base)


def read(fd: int, base: int) -> History:
    """Read the history; points that are not whole are left out.

    Args:
        fd: the board's file.
        base: where in it the history begins, in bytes.
    """
    try:
        columns = _names(os.pread(fd, _TABLE, base))
        row = len(columns) * 8 + 16
        area = os.pread(fd, row * (FINE + COARSE), base + _TABLE) if columns else b""
        if _names(os.pread(fd, _TABLE, base)) != columns:  # rewritten meanwhile: the rows may be of either
            return History()
    except OSError:
        return History()
    layout = struct.Struct(f"<d{len(columns)}QQ")
    rings: tuple[dict[float, tuple[int, ...]], ...] = ({}, {})
    for at in range(len(area) // row if columns else 0):
        part = area[at * row : (at + 1) * row]
        time, *figures, check = layout.unpack(part)
        if time and zlib.crc32(part[:-8]) == check:
            rings[at >= FINE][time] = tuple(figures)
    fine, coarse = rings
    first = min(fine, default=float("inf"))
    times = [*sorted(time for time in coarse if time < first), *sorted(fine)]
    points = [fine.get(time) or coarse[time] for time in times]
    used = {
        name: tuple(None if point[column] == _UNKNOWN else point[column] for point in points)
        for column, name in enumerate(columns)
    }
    return History(tuple(times), used)


def write(fd: int, data: bytes, offset: int) -> None:
    """Write all of `data`.

    Raises:
        OSError: not all was written; where the disk filled up meanwhile, the system returns a smaller number.
    """
    if os.pwrite(fd, data, offset) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _table(columns: tuple[str, ...]) -> bytes:
    return checked(json.dumps(columns).encode())


def _names(table: bytes) -> tuple[str, ...]:
    return tuple(json.loads(whole(table) or b"[]"))
