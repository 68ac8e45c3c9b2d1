"""Finds since when processes hold memory without using the GPU. The collector puts it into their rows.

A process uses a GPU when its kernels run there, by the driver's samples of each process. Where the driver has none, a
GPU on which nothing runs is used by nobody, and one with a single process by that; of others it is not known.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tfgpu_magic.ground.snapshot import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfgpu_magic.ground.snapshot import Gpu, Snapshot

AFTER = 60.0
"""Seconds without use from which on memory counts as held without use, and does so from the last use on."""
LONGEST_GAP = 180.0
"""Seconds between two readings of the lists beyond which it is not known what was used in between."""


class IdleRecord(NamedTuple):
    """What is known of a process on a GPU.

    Attributes:
        began: when it began (`pids.start_time`); None where that cannot be read.
        since: since when it has not used the GPU, in seconds since the epoch; None while it does, or that is not known.
        counted: whether that is longer than `AFTER`.
    """

    began: int | None
    since: float | None = None
    counted: bool = False


class IdleTracker:
    """What was found, reading by reading.

    Args:
        past: what an earlier collector has published last, which is continued.
    """

    def __init__(self, past: Snapshot | None = None) -> None:
        self._time = (past and past.listed_at) or 0.0
        self._records = {
            at: IdleRecord(row.began, row.unused, row.unused is not None)
            for at, row in (_by_place(past) if past else {}).items()
        }

    def step(self, snapshot: Snapshot, idle_kernels: Callable[[], Mapping[int, float]] = dict) -> Snapshot:
        """Go on to a reading, and return it with since when its processes hold memory without use.

        Args:
            snapshot: the reading, with when its processes began; without lists of its own it changes nothing.
            idle_kernels: returns since when kernels run no cell, by pid: after a longer time without readings, such a
                kernel has used nothing meanwhile.
        """
        now, before = snapshot.listed_at, self._time
        if now is None or snapshot.error or now == before:
            return snapshot
        gap = now - before
        seen = 0 <= gap <= LONGEST_GAP
        idle = idle_kernels() if gap > LONGEST_GAP and self._records else {}
        gpus = {gpu.label: (gpu, gpu.uuid or gpu.label) for gpu in snapshot.gpus if gpu.listed}
        crowd = Counter(row.gpu for row in snapshot.processes if row.utilisation is None)
        rows: list[Process] = []
        known, self._records, self._time = self._records, {}, now
        for row in snapshot.processes:
            if row.gpu not in gpus or row.kind == "G":
                rows.append(row)
                continue
            gpu, key = gpus[row.gpu]
            use = row.utilisation if row.utilisation is not None else _shared_use(gpu, crowd[row.gpu])
            record = known.get((key, row.pid))
            if record is None or record.began != row.began or not (seen or idle.get(row.pid, math.inf) <= before):
                record = IdleRecord(row.began, now if use == 0 else None)  # else nobody saw what it did
            else:
                record = _next_record(record, use, before, now)
            self._records[key, row.pid] = record
            rows.append(Process(*row[:7], record.since, row.cgroup) if record.counted else row)
        return snapshot._replace(processes=tuple(rows))


def _by_place(snapshot: Snapshot) -> dict[tuple[str, int], Process]:
    """Return the processes that compute, by the GPU's UUID, or its label where it has none, and their pids."""
    gpus = {gpu.label: gpu.uuid or gpu.label for gpu in snapshot.gpus if gpu.listed}
    return {(gpus[row.gpu], row.pid): row for row in snapshot.processes if row.gpu in gpus and row.kind != "G"}


def _next_record(record: IdleRecord, use: float | None, before: float, now: float) -> IdleRecord:
    began, since, counted = record
    if use != 0:
        return record if since is None else IdleRecord(began)
    if counted:
        return record
    since = before if since is None else since
    return IdleRecord(began, since, now - since >= AFTER)


def _shared_use(gpu: Gpu, count: int) -> float | None:
    """Return by how many percent each of so many processes uses a GPU, where the driver does not tell them apart."""
    return gpu.utilisation if gpu.utilisation == 0 or count == 1 else None
