"""Names the idle notebooks whose parking would make room for an isolated call that was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfgpu_magic import control, other_processes
from tfgpu_magic.config import making_room
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import allocation, offer

if TYPE_CHECKING:
    from tfgpu_magic.config.making_room import Idle
    from tfgpu_magic.isolate.demand import Demand


def advised(error: Refused, demand: Demand) -> Refused:
    """Return a refusal with the notebooks whose parking would make it fit; the same where there are none."""
    snapshot = demand.snapshot
    there = () if snapshot is None or not error.crowded else other_processes.now().idle(snapshot)
    if snapshot is None or not there:
        return error

    def fits(parked: Sequence[Idle]) -> bool:
        then = making_room.without(snapshot, parked)
        devices = demand.devices(control.current().settled, then)
        if devices is None:
            return True
        return allocation.choose(devices, offer.holding(then), (), demand.count(devices)) is not None

    advice: Refused = control.room().offered(error, "", snapshot, there, fits)
    return advice
