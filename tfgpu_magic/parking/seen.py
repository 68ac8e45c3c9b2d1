"""What is parked, for those who show it: from the record alone, since the driver answers nothing while it copies.

Whoever looks also has a helper started where one has died over something: what is shown is set right within seconds.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking import client, record
from tfgpu_magic.parking.states import UNSETTLED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.monitor.directory import BoardDirectory
    from tfgpu_magic.parking.record import Entry


def entries(places: Iterable[BoardDirectory]) -> tuple[Entry, ...]:
    """Return what the record has of processes that live; it takes microseconds where nothing was ever parked.

    Args:
        places: the directories in which a helper may keep it.
    """
    found = tuple(record.merged(map(record.read, places)).entries.values())
    if any(entry.phase in UNSETTLED or entry.wanted for entry in found):
        with contextlib.suppress(MonitorError):  # a later look may start one
            client.attend()
    return found
