"""Which idle notebooks are named when a policy does not fit: those whose parking makes it fit, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.sizes import GIB
from tfgpu_magic.config.making_room import Idle, chosen, idle, without
from tfgpu_magic.monitor.report import Report
from tfgpu_magic.monitor.snapshot import Gpu, Process, Snapshot

GPUS = tuple(Gpu(index=at, uuid=f"GPU-{at}", total=8 * GIB, used=8 * GIB, free=0) for at in (0, 1))


def on(**held: int) -> Snapshot:
    """Return two full GPUs, held by pids on the first (``p7``) and on the second (``q7``)."""
    rows = [Process(gpu=str("pq".index(at[0])), pid=int(at[1:]), kind="C", held=size) for at, size in held.items()]
    return Snapshot(time=100.0, gpus=GPUS, processes=tuple(rows))


def report(pid: int, *, active: float = 0.0, busy: bool | None = False, parks: bool = True) -> Report:
    return Report(pid=pid, summary="", busy=busy, active=active, parks=parks)


def needs(size: int, idles: Sequence[Idle], snapshot: Snapshot, gpu: int = 0) -> tuple[int, ...]:
    """Return the pids that are chosen where so many bytes of a GPU must be free."""
    found = chosen(idles, lambda parked: (without(snapshot, parked).gpus[gpu].free or 0) >= size)
    return tuple(one.pid for one in found)


def test_the_longest_idle_that_hold_memory_and_allow_it_come_first() -> None:
    snapshot = on(p1=GIB, p2=GIB, p3=GIB, p4=GIB, p5=GIB)
    reports = [
        report(1, active=50.0), report(2, active=20.0), report(3, busy=True), report(4, parks=False),
        report(5, busy=None), report(6), replace(report(1), pid=-1),
    ]  # fmt: skip

    assert [one.pid for one in idle(snapshot, reports)] == [2, 1]


def test_as_many_are_named_as_make_room_and_none_in_vain() -> None:
    snapshot = on(p1=GIB, p2=2 * GIB, p3=4 * GIB, q4=4 * GIB)
    idles = idle(snapshot, [report(pid, active=float(pid)) for pid in (4, 1, 2, 3)])

    assert needs(GIB, idles, snapshot) == (1,)
    assert needs(3 * GIB, idles, snapshot) == (1, 2)
    assert needs(4 * GIB, idles, snapshot) == (3,)
    assert needs(7 * GIB, idles, snapshot) == (1, 2, 3)
    assert needs(GIB, idles, snapshot, gpu=1) == (4,)  # what is on the other GPU is left alone


@pytest.mark.parametrize("size", [8 * GIB, 100 * GIB])
def test_nothing_is_named_where_all_together_do_not_help(size: int) -> None:
    snapshot = on(p1=GIB, p2=2 * GIB)

    assert needs(size, idle(snapshot, [report(1), report(2)]), snapshot) == ()
    assert needs(size, (), snapshot) == ()


def test_a_snapshot_without_the_parked_has_their_memory_free() -> None:
    snapshot = on(p1=GIB, q1=2 * GIB, p2=GIB)
    (one, *_) = idle(snapshot, [report(1)])
    then = without(snapshot, [one])

    assert [(gpu.free, gpu.used) for gpu in then.gpus] == [(GIB, 7 * GIB), (2 * GIB, 6 * GIB)]
    assert [row.pid for row in then.processes] == [2]
