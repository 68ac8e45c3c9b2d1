"""Memory that is held without use: since when, over days, restarts and what a driver hides."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from tests.machine.boards import collectors, published, the_collector
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.unused import IdleTracker
from tfgpu_magic.tell import fetch
from tfgpu_magic.tell.fetch import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tfgpu_magic.ground.rows import Table
    from tfgpu_magic.machine.see import Watch
    from tfgpu_magic.simgpu import Machine

HOUR = 3600.0
WEDNESDAY = datetime(2026, 11, 18).timestamp()


Use = Mapping[int, int | None]


def reading(at: float, use: Use, *, gpu: int | None = None, late: int = 0) -> Snapshot:
    """Return a snapshot of one GPU whose processes, by pid, use it by so many percent."""
    rows = (Process("0", pid, "C", GIB, percent, began=100 + pid + late) for pid, percent in use.items())
    gpus = (Gpu(index=0, uuid="GPU-0", sensors={"utilisation": gpu}),)
    return Snapshot(time=at, gpus=gpus, processes=tuple(rows), listed_at=at)


def stepped(tracker: IdleTracker, times: Iterable[float], use: Callable[[float], Use]) -> dict[int, float]:
    """Go on to readings, and return since when processes are said to hold memory without use in the last one."""
    return told([tracker.step(reading(at, use(at))) for at in times][-1])


def told(snapshot: Snapshot) -> dict[int, float]:
    return {row.pid: row.unused for row in snapshot.processes if row.unused is not None}


def every(seconds: float, start: float, end: float) -> list[float]:
    return [start + seconds * number for number in range(int((end - start) / seconds) + 1)]


def test_a_day_of_one_that_computes_one_that_holds_and_one_that_is_there_for_two_hours() -> None:
    tracker = IdleTracker()

    def use(at: float) -> dict[int, int | None]:
        hour = (at - WEDNESDAY) / HOUR
        there: dict[int, int | None] = {4: 0} if 12 <= hour < 14 else {}
        return {1: 80, 2: 50 if 9 <= hour < 10 else 0} | there

    found = stepped(tracker, every(2, WEDNESDAY, WEDNESDAY + 23.9 * HOUR), use)

    assert found == {2: pytest.approx(WEDNESDAY + 10 * HOUR, abs=4)}


def test_a_collector_that_is_killed_and_comes_back_loses_nothing() -> None:
    published, now = Snapshot(time=0.0), WEDNESDAY
    for _ in range(12):  # twelve collectors of an hour, each killed, and replaced after ten seconds
        tracker, end = IdleTracker(Snapshot.from_json(published.to_json())), now + HOUR
        while now < end:
            published = tracker.step(reading(now, {2: 0}))
            now += 2
        now += 10

    assert told(published) == {2: WEDNESDAY}


def test_what_nobody_saw_is_not_counted_but_for_kernels_that_ran_no_cell() -> None:
    for quiet, goes_on in (({}, False), ({2: WEDNESDAY - 5}, True), ({2: WEDNESDAY + 3 * HOUR}, False)):
        tracker = IdleTracker()
        stepped(tracker, every(2, WEDNESDAY, WEDNESDAY + HOUR), lambda _: {2: 0})
        later = WEDNESDAY + 9 * HOUR
        found = told(tracker.step(reading(later, {2: 0}), lambda quiet=quiet: quiet))  # type: ignore[misc]

        assert found == ({2: WEDNESDAY} if goes_on else {})


def test_a_pause_of_less_than_a_minute_is_use_and_each_of_many_is_counted_by_itself() -> None:
    use: dict[int, int | None] = {pid: 50 if pid % 2 else 0 for pid in range(1, 501)}

    def pausing(at: float) -> Use:
        return {**use, 501: 50 if (at - WEDNESDAY) % 50 < 4 else 0}

    assert stepped(IdleTracker(), every(2, WEDNESDAY, WEDNESDAY + 448), pausing).keys() == set(range(2, 501, 2))


@pytest.mark.parametrize(
    ("gpu", "alone", "known"), [(0, False, True), (30, True, False), (30, False, False), (None, True, False)]
)
def test_where_processes_are_not_told_apart_the_gpus_figure_tells_what_it_can(
    gpu: int | None, alone: bool, known: bool
) -> None:
    tracker = IdleTracker()
    now = WEDNESDAY + HOUR
    use: dict[int, int | None] = {2: None} if alone else {2: None, 4: None}
    found = [tracker.step(reading(at, use, gpu=gpu)) for at in every(2, WEDNESDAY, now)]

    assert (2 in told(found[-1])) == known


def test_a_clock_that_is_set_back_begins_anew() -> None:
    tracker = IdleTracker()
    stepped(tracker, every(2, WEDNESDAY, WEDNESDAY + HOUR), lambda _: {2: 0})

    assert told(tracker.step(reading(WEDNESDAY, {2: 0}))) == {}


def test_what_only_draws_and_what_cannot_be_read_is_left_out() -> None:
    tracker = IdleTracker()
    times = every(2, WEDNESDAY, WEDNESDAY + HOUR)
    rows = (Process("0", 2, "G", GIB, 0),)
    drawing = [reading(at, {})._replace(processes=rows) for at in times]
    failed = reading(WEDNESDAY + HOUR + 2, {4: 0})._replace(error="nobody answers")

    assert told([tracker.step(one) for one in drawing][-1]) == {}
    assert tracker.step(failed) is failed


def test_readings_with_old_lists_change_nothing() -> None:
    tracker, end = IdleTracker(), WEDNESDAY + HOUR
    stepped(tracker, every(2, WEDNESDAY, end), lambda _: {2: 0})
    memory = reading(end, {2: 99})._replace(time=end + 1)

    assert tracker.step(memory) is memory
    assert told(tracker.step(reading(end + 2, {2: 0}))) == {2: WEDNESDAY}


def test_a_process_that_has_the_pid_of_another_begins_anew() -> None:
    tracker, end = IdleTracker(), WEDNESDAY + HOUR
    stepped(tracker, every(2, WEDNESDAY, end), lambda _: {2: 0, 4: 0})
    anew = reading(end + 2, {4: 0}, late=1).processes

    found = reading(end + 2, {2: 0})
    assert told(tracker.step(found._replace(processes=found.processes + anew))) == {2: WEDNESDAY}


# --- what a real collector counts on a simulated machine, and what views see of it ---

NOT_SUPPORTED = 3


def counted(machine: Machine, *pids: int, ago: float = 30.0, late: int = 0) -> None:
    """Leave the board of a collector that has counted an hour of each pid, and ended so many seconds ago."""
    with BoardDirectory() as place:
        published(place, machine, [(0, pid) for pid in pids], since=time.time() - HOUR, ago=ago, late=late)


def counting_since(watcher: Watcher, time: float) -> bool:
    return (watcher.watch.read().snapshot.listed_at or 0.0) > time


def rows(table: Table) -> dict[int | None, Process]:
    return {row.process.pid: row.process for row in table.processes}


def test_a_collector_goes_on_where_one_before_it_was_killed(machine: Machine, live: Watch) -> None:
    holds, computes = machine.add_neighbour("2GiB@0"), machine.add_neighbour("1GiB@0")
    machine.use(computes.pid, 60)
    counted(machine, holds.pid, computes.pid)
    watcher = Watcher(live)

    def told() -> list[bool]:
        found = rows(watcher.read())
        return [found[pid].unused is not None for pid in (holds.pid, computes.pid)]

    until(told, lambda now: now == [True, False], despite=KeyError)
    killed = time.time()
    the_collector(machine).kill()
    until(told, lambda now: now == [True, False] and counting_since(watcher, killed), despite=KeyError)
    seen = rows(watcher.read())

    assert seen[computes.pid].utilisation == 60
    assert time.time() - (seen[holds.pid].unused or 0) == pytest.approx(HOUR, rel=0.1)


def test_a_process_that_has_the_pid_of_one_that_was_counted_begins_anew(machine: Machine, live: Watch) -> None:
    holds = machine.add_neighbour("2GiB@0")
    counted(machine, holds.pid, late=-1)
    watcher = Watcher(live)
    begun = time.time()
    until(watcher.read, lambda _: counting_since(watcher, begun))

    assert rows(watcher.read())[holds.pid].unused is None


def test_hidden_and_unsupported_use_is_unknown(machine: Machine, live: Watch) -> None:
    machine.fault("nvmlDeviceGetProcessUtilization", NOT_SUPPORTED)
    machine.fault("nvmlDeviceGetUtilizationRates", NOT_SUPPORTED)
    holds = machine.add_neighbour("2GiB@0")
    counted(machine, holds.pid)
    watcher = Watcher(live)
    row = until(lambda: rows(watcher.read()).get(holds.pid), lambda row: row and row.unused is None)
    assert row is not None

    assert (watcher.read().gpus[0].gpu.utilisation, row.utilisation) == (None, None)


def test_one_look_tells_what_a_collector_counts_and_of_no_other_process(machine: Machine, machine_folder: Path) -> None:
    holds, other = machine.add_neighbour("2GiB@0"), machine.add_neighbour("1GiB@0")
    counted(machine, holds.pid, ago=5)
    first = rows(fetch.table(timeout=20))
    until(lambda: not collectors(machine))
    counted(machine, holds.pid, ago=5, late=-1)
    second = rows(fetch.table(timeout=20))

    assert first[holds.pid].unused == pytest.approx(time.time() - HOUR, abs=120)
    assert (first[other.pid].unused, second[holds.pid].unused) == (None, None)
