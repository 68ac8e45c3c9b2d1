"""What a viewer may have of the GPUs on a board that the machine's collector writes, which is in no limited cgroup."""

from __future__ import annotations

import contextlib
import json
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfgpu_magic.monitor.driver.limits import UNLIMITED, cgroups, left
from tfgpu_magic.monitor.owners.cgroups import named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgpu_magic.model.snapshot import Gpu, Snapshot

STATE = Path("/run/tfgpu_limits/limits.json")
"""Which limits are in force, by the service that sets them (`root`); only root makes folders in /run."""
EVERY = 10.0
"""Seconds for which it counts as read: it has all users' limits."""


def limited(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the limits of this process's cgroups, on GPUs where it has none; without any, itself."""
    limits, own = _limits(int(time.monotonic() / EVERY))
    if not limits:
        return snapshot
    here = os.getuid(), own
    mine = snapshot._replace(processes=tuple(row for row in snapshot.processes if (row.uid, row.cgroup) == here))
    return snapshot._replace(gpus=tuple(_limited(gpu, limits.get(gpu.uuid or ""), mine) for gpu in snapshot.gpus))


def _limited(gpu: Gpu, hard: int | None, mine: Snapshot) -> Gpu:
    if hard is None or gpu.limit is not None:
        return gpu
    used = sum(row.held or 0 for row in mine.processes if row.gpu == gpu.label)
    return gpu._replace(**left([(hard, used)], gpu.free))  # type: ignore[arg-type]  # of fields that are sizes


@lru_cache(1)
def _limits(at: int) -> tuple[Mapping[str, int], str | None]:
    """Return the lowest hard limit that holds here on each GPU, by UUID, and this process's cgroup as rows name it."""
    del at
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        stated = json.loads(STATE.read_bytes())["limits"]
        for folder in cgroups():
            in_force = {uuid: hard for uuid, (_, hard, why) in stated.get(folder, {}).items() if not why}
            found |= {uuid: min(hard, found.get(uuid, hard)) for uuid, hard in in_force.items() if hard != UNLIMITED}
        return found, named(Path("/proc/self/cgroup").read_text())
    return {}, None
