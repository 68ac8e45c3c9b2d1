"""Which idle notebooks' parking would make room for a policy: as few as do, the longest idle first. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfgpu_magic.monitor.report import Report
from tfgpu_magic.monitor.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """One of this user's other notebooks that runs no cell and lets itself be parked.

    Attributes:
        pid: its kernel.
        since: since when it runs no cell, in seconds since the epoch; None where that is not known.
        held: the bytes that it holds of each GPU, by `Gpu.label`.
    """

    pid: int
    since: float | None = None
    held: Mapping[str, int] = field(default_factory=dict)


def idle(snapshot: Snapshot, reports: Iterable[Report]) -> tuple[Idle, ...]:
    """Return the idle notebooks that hold memory and can be asked to park, the longest idle first.

    Args:
        snapshot: the machine's GPUs and what each process holds of them.
        reports: what the other processes report, without those that are parked.
    """
    found = []
    for report in reports:
        held = {row.gpu: row.held for row in snapshot.processes if row.pid == report.pid and row.held}
        if report.parks and report.busy is False and held:
            found.append(Idle(pid=report.pid, since=report.active, held=held))
    return tuple(sorted(found, key=lambda one: math.inf if one.since is None else one.since))


def chosen(idle: Sequence[Idle], fits: Callable[[Sequence[Idle]], bool]) -> tuple[Idle, ...]:
    """Return the notebooks whose parking makes room, none of them in vain; nothing where all together do not.

    Args:
        idle: those that can be parked, the one that is asked first before the others.
        fits: tells whether what is wanted fits when these are parked.
    """
    taken: list[Idle] = []
    for one in idle:
        taken.append(one)
        if fits(taken):
            break
    else:
        return ()
    for one in tuple(taken[:-1]):  # without the last it did not fit
        rest = [other for other in taken if other is not one]
        if fits(rest):
            taken = rest
    return tuple(taken)


def without(snapshot: Snapshot, parked: Iterable[Idle]) -> Snapshot:
    """Return the snapshot as it will be when these are parked."""
    gone = {one.pid: one for one in parked}
    gpus = []
    for gpu in snapshot.gpus:
        size = sum(one.held.get(gpu.label, 0) for one in gone.values())
        free = None if gpu.free is None else gpu.free + size
        used = None if gpu.used is None else max(0, gpu.used - size)
        gpus.append(replace(gpu, free=free, used=used) if size else gpu)
    rows = tuple(row for row in snapshot.processes if row.pid not in gone)
    return replace(snapshot, gpus=tuple(gpus), processes=rows)
