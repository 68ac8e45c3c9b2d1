"""The timeline: plain data that stays small."""

from __future__ import annotations

from tests.sizes import GIB, MIB
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.insight import timeline
from tfgpu_magic.insight.measurement import Measurement, PoolUse
from tfgpu_magic.insight.timeline import Level, Sample, Timeline


def sample(at: float, in_use: int, gpu: str = "GPU-0") -> Sample:
    return Sample(at, (Level(gpu, in_use, None),))


def cell(number: int) -> Measurement:
    pool = PoolUse(framework="TensorFlow", name="GPU:0", gpu="GPU-0", before=0, after=MIB, peak=2 * MIB)
    return Measurement(cell=number, what="train()", began=1.0, seconds=1.0, pools=(pool,))


def test_levels_are_those_of_each_gpu_over_all_pools_and_frameworks() -> None:
    line = Timeline()
    given = [("a", 1, 10), ("b", 2, 20), ("a", 3, 30), ("b", 4, None), ("b", 5, 50)]
    line.sample(Pool("", "", gpu, in_use, 0, limit=limit) for gpu, in_use, limit in given)

    assert line.samples()[0].levels == (Level("a", 4, 40), Level("b", 11, None))


def test_a_level_line_takes_two_samples_however_long_it_is() -> None:
    line = Timeline()
    for second in range(100):
        line.add(sample(second, MIB if second < 50 else GIB))

    assert [one.time for one in line.samples()] == [0, 49, 50, 99]


def test_nothing_is_kept_before_a_gpu_is_used() -> None:
    line = Timeline()
    line.add(Sample(1.0, ()))

    assert line.samples() == ()


def test_it_does_not_grow_for_ever_and_the_newest_stays() -> None:
    line = Timeline()
    for number in range(timeline.SAMPLES + 10):
        line.add(sample(number, number))
    for number in range(timeline.CELLS + 10):
        line.add_cell(cell(number))

    assert [one.time for one in line.samples()] == list(range(10, timeline.SAMPLES + 10))
    assert [one.cell for one in line.cells()] == list(range(10, timeline.CELLS + 10))
