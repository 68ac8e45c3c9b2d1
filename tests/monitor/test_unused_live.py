"""What a real collector counts of memory that is held without use, on a simulated machine, and what views see of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.monitor.boards import published, the_collector
from tests.waiting import until
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.table import fetch
from tfgpu_magic.monitor.table.fetch import Watcher

if TYPE_CHECKING:
    from pathlib import Path

    from tfgpu_magic.model.rows import ProcessRow, Table
    from tfgpu_magic.monitor.live import Live
    from tfgpu_magic.simgpu import Machine

HOUR = 3600.0
NOT_SUPPORTED = 3


@pytest.fixture
def gpus() -> str:
    return "1x16GiB"


def counted(machine: Machine, *pids: int, ago: float = 30.0, late: int = 0) -> None:
    """Leave the board of a collector that has counted an hour of each pid, and ended so many seconds ago."""
    with BoardDirectory() as place:
        published(place, machine, [(0, pid) for pid in pids], since=time.time() - HOUR, ago=ago, late=late)


def counting_since(watcher: Watcher, time: float) -> bool:
    return (watcher.live.look().snapshot.listed_at or 0.0) > time


def rows(table: Table) -> dict[int | None, ProcessRow]:
    return {row.pid: row for row in table.processes}


def test_a_collector_goes_on_where_one_before_it_was_killed(machine: Machine, live: Live) -> None:
    holds, computes = machine.add_neighbour("2GiB@0"), machine.add_neighbour("1GiB@0")
    machine.use(computes.pid, 60)
    counted(machine, holds.pid, computes.pid)
    watcher = Watcher(live)

    def told() -> list[bool]:
        found = rows(watcher.see())
        return [found[pid].unused is not None for pid in (holds.pid, computes.pid)]

    until(told, lambda now: now == [True, False], despite=KeyError)
    killed = time.time()
    the_collector(machine).kill()
    until(told, lambda now: now == [True, False] and counting_since(watcher, killed), despite=KeyError)
    seen = rows(watcher.see())

    assert seen[computes.pid].utilisation == 60
    assert time.time() - (seen[holds.pid].unused or 0) == pytest.approx(HOUR, rel=0.1)


def test_a_process_that_has_the_pid_of_one_that_was_counted_begins_anew(machine: Machine, live: Live) -> None:
    holds = machine.add_neighbour("2GiB@0")
    counted(machine, holds.pid, late=-1)
    watcher = Watcher(live)
    begun = time.time()
    until(watcher.see, lambda _: counting_since(watcher, begun))

    assert rows(watcher.see())[holds.pid].unused is None


def test_hidden_and_unsupported_use_is_unknown(machine: Machine, live: Live) -> None:
    machine.fault("nvmlDeviceGetProcessUtilization", NOT_SUPPORTED)
    machine.fault("nvmlDeviceGetUtilizationRates", NOT_SUPPORTED)
    holds = machine.add_neighbour("2GiB@0")
    counted(machine, holds.pid)
    watcher = Watcher(live)
    row = until(lambda: rows(watcher.see()).get(holds.pid), lambda row: row and row.unused is None)
    assert row is not None

    assert (watcher.see().gpus[0].utilisation, row.utilisation) == (None, None)


def test_one_look_tells_what_a_collector_counts_and_of_no_other_process(machine: Machine, machine_folder: Path) -> None:
    holds, other = machine.add_neighbour("2GiB@0"), machine.add_neighbour("1GiB@0")
    counted(machine, holds.pid, ago=5)
    first = rows(fetch.table(timeout=20))
    counted(machine, holds.pid, ago=5, late=-1)
    second = rows(fetch.table(timeout=20))

    assert first[holds.pid].unused == pytest.approx(time.time() - HOUR, abs=120)
    assert (first[other.pid].unused, second[holds.pid].unused) == (None, None)
