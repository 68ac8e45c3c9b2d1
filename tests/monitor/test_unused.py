"""Memory that is held without use: since when, over days, restarts and what a driver hides."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from tests.sizes import GIB
from tfgpu_magic.model.rows import ProcessRow
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.board.unused import AFTER, LONGEST_GAP, TRUE_FOR, Ledger, UnusedRecord
from tfgpu_magic.monitor.table.tabulate import Known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

HOUR = 3600.0
WEDNESDAY = datetime(2026, 11, 18).timestamp()


def began(pid: int) -> int | None:
    return 100 + pid


def reading(at: float, use: Mapping[int, int | None], *, gpu: int | None = None) -> Snapshot:
    """Return a snapshot of one GPU whose processes, by pid, use it by so many percent."""
    rows = tuple(Process(gpu="0", pid=pid, kind="C", held=GIB, utilisation=percent) for pid, percent in use.items())
    gpus = (Gpu(index=0, uuid="GPU-0", utilisation=gpu),)
    return Snapshot(time=at, gpus=gpus, processes=rows, listed_at=at)


def stepped(
    ledger: Ledger, times: Iterator[float] | list[float], use: Callable[[float], Mapping[int, int | None]]
) -> None:
    for at in times:
        ledger.step(reading(at, use(at)), began)


def every(seconds: float, start: float, end: float) -> list[float]:
    return [start + seconds * number for number in range(int((end - start) / seconds) + 1)]


def told(ledger: Ledger, pids: Iterable[int], now: float) -> dict[int | None, float]:
    """Return since when processes of the GPU are said to hold memory without use."""
    rows = [ProcessRow(gpu="0", pid=pid, kind="C", who="mine", owner="", held=GIB) for pid in pids]
    made = ledger.record().added(Gpu(index=0, uuid="GPU-0"), rows, Known(), {}, Snapshot(time=now))
    return {row.pid: row.unused for row in made if row.unused is not None}


def since(ledger: Ledger, pid: int, now: float) -> float | None:
    return told(ledger, {pid}, now).get(pid)


def test_a_day_of_one_that_computes_one_that_holds_and_one_that_is_there_for_two_hours() -> None:
    ledger = Ledger()

    def use(at: float) -> dict[int, int | None]:
        hour = (at - WEDNESDAY) / HOUR
        there: dict[int, int | None] = {4: 0} if 12 <= hour < 14 else {}
        return {1: 80, 2: 50 if 9 <= hour < 10 else 0} | there

    stepped(ledger, every(2, WEDNESDAY, WEDNESDAY + 23.9 * HOUR), use)
    now = WEDNESDAY + 23.9 * HOUR

    assert since(ledger, 2, now) == pytest.approx(WEDNESDAY + 10 * HOUR, abs=4)
    assert since(ledger, 1, now) is None


def test_a_collector_that_is_killed_and_comes_back_loses_nothing() -> None:
    kept, now = UnusedRecord(), WEDNESDAY
    for _ in range(12):  # twelve collectors of an hour, each killed, and replaced after ten seconds
        ledger, end = Ledger(UnusedRecord.from_json(kept.to_json())), now + HOUR
        while now < end:
            if ledger.step(reading(now, {2: 0}), began):
                kept = ledger.record()
            now += 2
        now += 10

    assert kept.lines["GPU-0"][2].since == WEDNESDAY


def test_what_nobody_saw_is_not_counted_but_for_kernels_that_ran_no_cell() -> None:
    for quiet, goes_on in (({}, False), ({2: WEDNESDAY - 5}, True), ({2: WEDNESDAY + 3 * HOUR}, False)):
        ledger = Ledger()
        stepped(ledger, every(2, WEDNESDAY, WEDNESDAY + HOUR), lambda _: {2: 0})
        later = WEDNESDAY + 9 * HOUR
        ledger.step(reading(later, {2: 0}), began, lambda quiet=quiet: quiet)  # type: ignore[misc]

        assert since(ledger, 2, later) == (WEDNESDAY if goes_on else None)


def test_a_pause_of_less_than_a_minute_is_use() -> None:
    ledger = Ledger()
    end = WEDNESDAY + HOUR
    stepped(ledger, every(2, WEDNESDAY, end), lambda at: {2: 50 if (at - WEDNESDAY) % 50 < 4 else 0})

    assert since(ledger, 2, end) is None


@pytest.mark.parametrize(
    ("gpu", "alone", "known"), [(0, False, True), (30, True, False), (30, False, False), (None, True, False)]
)
def test_where_processes_are_not_told_apart_the_gpus_figure_tells_what_it_can(
    gpu: int | None, alone: bool, known: bool
) -> None:
    ledger = Ledger()
    now = WEDNESDAY + HOUR
    use: dict[int, int | None] = {2: None} if alone else {2: None, 4: None}
    for at in every(2, WEDNESDAY, now):
        ledger.step(reading(at, use, gpu=gpu), began)

    assert (since(ledger, 2, now) is not None) == known


def test_a_record_that_is_old_tells_nothing_of_now() -> None:
    ledger = Ledger()
    now = WEDNESDAY + HOUR
    stepped(ledger, every(2, WEDNESDAY, now), lambda _: {2: 0})

    assert since(ledger, 2, now + TRUE_FOR + 1) is None


def test_a_clock_that_is_set_back_begins_anew() -> None:
    ledger = Ledger()
    stepped(ledger, every(2, WEDNESDAY, WEDNESDAY + HOUR), lambda _: {2: 0})
    ledger.step(reading(WEDNESDAY, {2: 0}), began)

    assert since(ledger, 2, WEDNESDAY) is None


def test_what_only_draws_and_what_cannot_be_read_is_left_out() -> None:
    ledger = Ledger()
    drawing = reading(WEDNESDAY, {2: 0})
    ledger.step(drawing._replace(processes=(drawing.processes[0]._replace(kind="G"),)), began)
    ledger.step(reading(WEDNESDAY + 2, {4: 0})._replace(error="nobody answers"), began)

    assert ledger.record().lines == {}


def test_readings_with_old_lists_change_nothing() -> None:
    ledger = Ledger()
    stepped(ledger, every(2, WEDNESDAY, WEDNESDAY + HOUR), lambda _: {2: 0})
    before = ledger.record()

    assert not ledger.step(reading(WEDNESDAY + HOUR, {2: 99})._replace(time=WEDNESDAY + HOUR + 1), began)
    assert ledger.record() == before


def test_a_process_is_read_once_while_its_pid_can_be_trusted() -> None:
    asked: list[int] = []

    def reads(pid: int) -> int | None:
        asked.append(pid)
        return began(pid)

    ledger = Ledger()
    for at in every(2, WEDNESDAY, WEDNESDAY + HOUR):
        ledger.step(reading(at, {2: 0, 4: 0}), reads)
    ledger.step(reading(WEDNESDAY + HOUR + LONGEST_GAP - 1, {2: 0, 4: 0}), reads)

    assert asked == [2, 4, 2, 4]


def test_it_is_kept_when_something_begins_to_count_or_ends_and_now_and_then_in_between() -> None:
    ledger = Ledger()
    kept = [at - WEDNESDAY for at in every(2, WEDNESDAY, WEDNESDAY + 200) if ledger.step(reading(at, {2: 0}), began)]
    end = WEDNESDAY + 202

    assert kept == [0, AFTER, *(AFTER + 20 * number for number in range(1, 8))]
    assert ledger.step(reading(end, {2: 50}), began)
    assert not ledger.step(reading(end + 2, {2: 50}), began)


def test_a_record_soon_forgets_a_process_that_has_gone_and_knows_one_that_has_come() -> None:
    ledger = Ledger()
    kept = [
        (at - WEDNESDAY, [*ledger.record().lines["GPU-0"]])
        for at in every(2, WEDNESDAY, WEDNESDAY + 100)
        if ledger.step(reading(at, {2: 50} if at < WEDNESDAY + 30 else {4: 50}), began)
    ]

    assert kept == [(0, [2]), (30, [4])]


def test_five_hundred_processes_are_counted_each_by_itself() -> None:
    ledger = Ledger()
    now = WEDNESDAY + 1200
    for at in every(10, WEDNESDAY, now):
        ledger.step(reading(at, {pid: 50 if pid % 2 else 0 for pid in range(1, 501)}), began)

    assert told(ledger, range(1, 501), now).keys() == set(range(2, 501, 2))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"time":1}', '{"time":1,"lines":{"0":{"x":[1]}}}'])
def test_what_is_no_record_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        UnusedRecord.from_json(text)
