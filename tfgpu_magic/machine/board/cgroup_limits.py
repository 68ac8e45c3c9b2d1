"""What a viewer may have of the GPUs on a board that the machine's collector writes, which is in no limited cgroup."""

from __future__ import annotations

import contextlib
import json
import os
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from tfgpu_magic.machine.driver.limits import UNLIMITED, cgroups, remaining
from tfgpu_magic.machine.owners.cgroups import cgroup_name
from tfgpu_magic.machine.owners.pids import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot

STATE = "/run/tfgpu_limits/limits.json"
"""Which limits are in force, by the service that sets them (`root`); only root makes folders in /run."""
EVERY = 10.0
"""Seconds for which it counts as read: it has all users' limits."""


def with_cgroup_limits(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the limits of this process's cgroups, on GPUs where it has none; without any, itself."""
    limits, own = _read_limits(int(time.monotonic() / EVERY))
    if not limits:
        return snapshot
    many = -1 - os.getuid()  # the pid of a row that stands for many of this user's, in whichever cgroups
    mine = [row for row in snapshot.processes if (own and row.cgroup == own) or row.pid == many]
    return snapshot._replace(gpus=tuple(_cap(gpu, limits.get(gpu.uuid or "", []), mine) for gpu in snapshot.gpus))


def _cap(gpu: Gpu, limits: Iterable[tuple[int, bool]], mine: Iterable[Process]) -> Gpu:
    limits = [(hard, own) for hard, own in limits if gpu.total is None or hard < gpu.total]
    if not limits or gpu.limit is not None:
        return gpu
    held = [None if row.pid < 0 else row.held for row in mine if row.gpu == gpu.label]
    known = [size for size in held if size is not None]
    if not gpu.listed or len(known) < len(held) or not all(own for _, own in limits):
        return gpu._replace(limit=min(limits)[0], free=None)
    fields = remaining([(hard, sum(known)) for hard, _ in limits], gpu.free, gpu.total)
    return gpu._replace(**fields)  # type: ignore[arg-type]  # of fields that are sizes


@lru_cache(1)
def _read_limits(at: int) -> tuple[Mapping[str, list[tuple[int, bool]]], str | None]:
    """Return the hard limits that hold here on each GPU, by UUID, and this process's cgroup as rows name it.

    With each limit comes whether it is that cgroup's. What is held in another, such as a slice above, no row tells.
    """
    del at
    found: dict[str, list[tuple[int, bool]]] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        with open(STATE, "rb") as file:
            stated = json.load(file)["limits"]
        own = cgroup_name(read_text("self", "cgroup"))
        for folder in cgroups():
            for uuid, (_, hard, why) in stated.get(folder, {}).items():
                if not why and hard != UNLIMITED:
                    found.setdefault(uuid, []).append((hard, own == f"unit:{os.path.basename(folder)}"))
        return found, own
    return {}, None
