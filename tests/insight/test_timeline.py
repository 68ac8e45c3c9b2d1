"""The timeline: plain data that stays small, keeps the way to an error, and can be written and read."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.insight import timeline
from tfgpu_magic.insight.timeline import CellUse, Level, Sample, Timeline, levels
from tfgpu_magic.insight.usage import PoolUse


def sample(at: float, in_use: int, gpu: str = "GPU-0") -> Sample:
    return Sample(at, (Level(gpu, in_use, None),))


def cell(number: int, **options: object) -> CellUse:
    pool = PoolUse(framework="TensorFlow", name="GPU:0", gpu="GPU-0", before=0, after=MIB, peak=2 * MIB)
    return CellUse(number=number, title="train()", began=1.0, ended=2.0, pools=(pool,), **options)  # type: ignore[arg-type]


def test_levels_are_those_of_each_gpu_over_all_pools_and_frameworks() -> None:
    found = levels([("a", 1, 10), ("b", 2, 20), ("a", 3, 30), ("b", 4, None), ("b", 5, 50)])

    assert found == (Level("a", 4, 40), Level("b", 11, None))


def test_a_level_line_takes_two_samples_however_long_it_is() -> None:
    line = Timeline()
    for second in range(100):
        line.add(sample(second, MIB if second < 50 else GIB))

    assert [one.time for one in line.samples()] == [0, 49, 50, 99]


def test_nothing_is_kept_before_a_gpu_is_used() -> None:
    line = Timeline()
    line.add(Sample(1.0, ()))

    assert line.samples() == ()


def test_it_does_not_grow_for_ever() -> None:
    line = Timeline()
    for number in range(3 * (timeline.RECENT + timeline.OLDER)):
        line.add(sample(number, number))
    for number in range(timeline.CELLS + 10):
        line.add_cell(cell(number))
    for _ in range(timeline.FAILURES + 10):
        line.keep(None)

    assert len(line.samples()) <= timeline.RECENT + timeline.OLDER
    assert len(line.cells()) == timeline.CELLS
    assert len(line.failures()) == timeline.FAILURES
    assert line.cells()[-1].number == timeline.CELLS + 9


def test_of_a_long_session_all_is_there_the_newest_as_it_was_and_the_highest() -> None:
    line, count = Timeline(), 10 * timeline.RECENT
    for number in range(count):
        line.add(sample(number, GIB if number == 70 else number))
    times = [one.time for one in line.samples()]

    assert times == sorted(times)
    assert times[0] < 70
    assert max(later - earlier for earlier, later in pairwise(times)) <= 2 * 16  # seconds: 5 h in 1800 samples
    assert times[-timeline.RECENT :] == list(range(count - timeline.RECENT, count))
    assert max(one.levels[0].in_use for one in line.samples()) == GIB


def test_the_minutes_before_an_error_are_kept_as_they_were() -> None:
    line, now = Timeline(), time.time()
    for ago in (5000.0, 300.0, 299.5, 1.0):
        line.add(sample(now - ago, round(ago)))
    line.keep(7)
    for number in range(10 * timeline.RECENT):
        line.add(sample(now + number, number))
    (failure,) = line.failures()

    assert failure.number == 7
    assert [one.levels[0].in_use for one in failure.samples] == [300, 300, 1]


def test_it_is_written_as_json_and_read_again() -> None:
    line = Timeline([sample(time.time(), MIB)], [cell(3, error="ValueError")])
    line.keep(3)

    again = Timeline.from_dict(json.loads(json.dumps(line.to_dict())))

    assert (again.samples(), again.cells(), again.failures()) == (line.samples(), line.cells(), line.failures())


@pytest.mark.parametrize("record", [None, [], {}, {"samples": [1], "cells": [], "failures": []}])
def test_what_is_no_record_is_a_value_error(record: object) -> None:
    with pytest.raises(ValueError, match="not the record of a session"):
        Timeline.from_dict(record)
