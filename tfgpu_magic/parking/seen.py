"""What is parked, for those who show it: from the record alone, since the driver answers nothing while it copies.

Whoever looks also has a helper started where one has died over something: what is shown is set right within seconds.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.parking import client, facts, record
from tfgpu_magic.parking.states import UNSETTLED, Phase

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


def must_end_itself(pid: int) -> bool:
    """Tell whether to kill a process may stop the machine: its state was brought back under the open kernel module.

    One that ends by itself has stopped none, nor one whose state is away. Source: NVIDIA/cuda-checkpoint#53.
    """
    entry = client.parked(pid)
    if entry is None or entry.phase is Phase.PARKED:
        return False
    was_away = entry.returns > 0 or entry.phase not in (Phase.LOCKING, Phase.CHECKPOINTING)
    return was_away and facts.open_module() is not False
