"""Names the idle notebook whose parking would make room for an isolated call that was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic import control, idle_notebooks, other_processes
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import allocation, offer

if TYPE_CHECKING:
    from tfgpu_magic.isolate.demand import Demand
    from tfgpu_magic.monitor.snapshot import Snapshot
    from tfgpu_magic.other_processes import OtherProcesses


def advised(error: Refused, demand: Demand) -> Refused:
    """Return a refusal with the notebook whose parking would make it fit; as it is where there is none."""

    def fits(then: Snapshot, _: OtherProcesses) -> bool:
        devices = demand.devices(control.current().settled, then)
        if devices is None:
            return True
        return allocation.choose(devices, offer.holding(then), (), demand.count(devices)) is not None

    if error.crowded and demand.snapshot is not None:
        idle_notebooks.name_one(error, demand.snapshot, other_processes.now(), fits)
    return error
