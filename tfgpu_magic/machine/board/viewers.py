"""What a collector and those who start it share: timeouts, names, and empty files that say what is wanted of it.

The name of a viewers' file says how often they want readings, and its time when one has looked last. Who needs a
reading that begins now touches `asked`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfgpu_magic.machine.driver.schedule import WantedIntervals

if TYPE_CHECKING:
    from tfgpu_magic.machine.board.directory import BoardDirectory

LINGER = 30.0
"""Seconds that a collector stays after the last viewer's look."""
READING_TIMEOUT = 60.0
"""Seconds that a reading may take: a driver without persistence takes many to start, on many GPUs."""
LIBRARIES = "TFGPU_MAGIC_LIBRARIES"
"""Folders in which what asks the driver looks for its library, too; views set it to `LD_LIBRARY_PATH`."""
PROCESS_NAME = "tfgpu-collector"
"""The process's name, also as a zombie; Linux keeps 15 characters."""
TAKEN = "taken"
"""What a collector answers that finds another."""
PREFIX, ASKED, LOCK = "viewers-", "asked", "lock"
"""How the viewers' files' names begin, and the names of the others: `lock` is locked by the only collector."""

WANT_HOLDS_FOR = 5.0
"""Seconds for which a viewer that wants a thing less often changes nothing; all viewers touch their file repeatedly."""


def want(place: BoardDirectory, every: WantedIntervals) -> None:
    """Note that a viewer looks now, and how often it wants readings.

    Raises:
        OSError: it cannot be noted.
        MonitorError: as `BoardDirectory.open`.
    """
    place.touch(f"{PREFIX}{every.memory:g}-{every.lists:g}")


def newest_view(place: BoardDirectory) -> int:
    """Return when a viewer has looked last, in nanoseconds since the epoch; 0 if none has."""
    return max(map(place.touch_time, place.list_names(PREFIX)), default=0)


def read_wanted(place: BoardDirectory) -> WantedIntervals:
    """Return how often the viewers want readings: the one who wants them most often of those who look now."""
    found = [(place.touch_time(name), *map(float, name.split("-")[1:])) for name in place.list_names(PREFIX)]
    since = min(time.time_ns() - round(WANT_HOLDS_FOR * 1e9), max(found, default=(0,))[0])
    now = [one for one in found if one[0] >= since]
    memory = max(1.0, min((one[1] for one in now), default=1.0))
    return WantedIntervals(memory, max(2.0 * memory, min((one[2] for one in now), default=2.0)))
