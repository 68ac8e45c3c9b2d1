"""The use of each GPU in the last hour: a line of JSON a second, and one in ten seconds before that."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.errors import MonitorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.ground.snapshot import Snapshot
    from tfgpu_magic.machine.board.directory import BoardDirectory

HISTORY = "history"
"""The file's name."""
KEPT_FOR, FINE_FOR, COARSE = 3600.0, 600.0, 10.0
"""Seconds for which points are kept, and for which all of them are; of those before, one in so many seconds."""

_EVERY = 1.0  # seconds between two points
_EARLY = 0.5  # seconds: readings are late by a little, and the next one may be less late
_MOST_NEW = 600  # points that are added before old ones are cut
_LARGEST = 2**26  # bytes

Points = dict[float, "dict[str, tuple[int | None, int | None]]"]  # of each GPU the bytes used, and its utilisation


class History(NamedTuple):
    """The bytes used of each GPU and its utilisation, over time.

    Attributes:
        times: seconds since the epoch, rising; about a second apart in the last 10 minutes, about 10 s before.
        used: for each UUID (label, where a GPU has none) as many figures as `times`: bytes, or None when unknown.
        utilisation: the same in percent.
    """

    times: tuple[float, ...] = ()
    used: Mapping[str, tuple[int | None, ...]] = MappingProxyType({})
    utilisation: Mapping[str, tuple[int | None, ...]] = MappingProxyType({})


class HistoryWriter:
    """The writer's side. It continues what is there.

    Args:
        place: where the file is.
    """

    def __init__(self, place: BoardDirectory) -> None:
        self._place = place
        self._last = max(_points(self._place), default=0.0)
        self._new = _MOST_NEW  # the first point cuts what an earlier collector has left

    def add(self, snapshot: Snapshot) -> None:
        """Add a point, unless it is too early for one.

        Raises:
            OSError: it could not be written.
            MonitorError: something else is in the way.
        """
        now = snapshot.time
        if not snapshot.gpus or 0 <= now - self._last < _EVERY - _EARLY:
            return
        line = _line(now, {gpu.uuid or gpu.label: (gpu.used, gpu.utilisation) for gpu in snapshot.gpus})
        if now < self._last or self._new >= _MOST_NEW:  # where the clock was set back, later points are in the future
            kept = [_line(at, point) for at, point in _thin_out(_points(self._place), now).items()]
            os.close(self._place.rewrite(HISTORY, b"".join([*kept, line])))
            self._new = 0
        else:
            _append(self._place, line)
        self._new, self._last = self._new + 1, now


def read_history(place: BoardDirectory) -> History:
    """Return the history; lines that are not whole are left out, and a file that is not the user's own."""
    points = _points(place)
    names = dict.fromkeys(name for point in points.values() for name in point)
    pairs = {name: [point.get(name, (None, None)) for point in points.values()] for name in names}
    return History(tuple(points), *({name: tuple(one[at] for one in pairs[name]) for name in names} for at in (0, 1)))


def _points(place: BoardDirectory) -> Points:
    try:
        fd = place.open(HISTORY, os.O_RDONLY)
    except (FileNotFoundError, MonitorError):  # what is not ours is replaced by the next point
        return {}
    with os.fdopen(fd, "rb") as file:
        lines = file.read(_LARGEST).splitlines()
    found: Points = {}
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            point = json.loads(line)
            pairs = {name: [one if one is None else round(one) for one in pair] for name, pair in point["gpus"].items()}
            found[float(point["time"])] = {name: (used, use) for name, (used, use) in pairs.items()}
    return dict(sorted(found.items()))


def _thin_out(points: Points, now: float) -> Points:
    """Return the points of the last hour, from which those are left out that are closer than they need be."""
    found: Points = {}
    last = 0.0
    for at, point in points.items():
        if now - KEPT_FOR <= at < now and (at >= now - FINE_FOR or at - last >= COARSE - _EARLY):
            found[at], last = point, at
    return found


def _line(at: float, point: Mapping[str, tuple[int | None, float | None]]) -> bytes:
    """Return a point's line, after an end of the line before: that may be half a line, where the disk was full."""
    return f"\n{json.dumps({'time': at, 'gpus': point}, separators=(',', ':'))}".encode()


def _append(place: BoardDirectory, line: bytes) -> None:
    fd = place.open(HISTORY, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        if os.write(fd, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
