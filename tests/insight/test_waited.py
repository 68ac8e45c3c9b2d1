"""What the samples show of the seconds in which a framework waited for memory."""

from __future__ import annotations

import pytest

from tests.sizes import MIB
from tfgpu_magic.insight.timeline import Level, Sample
from tfgpu_magic.insight.why import waited


def _seen(*points: tuple[float, int]) -> int | None:
    """Return what was in use in a cell from second 10 to second 30, by samples of seconds and MiB."""
    samples = [
        Sample(at, (Level("GPU-1", number, None), Level("GPU-0", mib * MIB, None)))
        for number, (at, mib) in enumerate(points)
    ]
    found = waited.in_use(samples, "GPU-0", since=10, until=30)
    return None if found is None else found // MIB


@pytest.mark.parametrize(
    ("points", "mib"),
    [
        (((12, 100), (19, 700), (29, 700)), 700),
        (((19, 700), (29, 700), (29.9, 100)), 700),  # it has let go when it had failed
        (((12, 100), (19, 700), (21, 701), (24, 700), (29, 700)), 700),
        (((0, 700), (29, 700)), 700),  # of a level line the ends are kept
        (((0, 700), (14, 700)), None),
        (((0, 700), (26, 100), (29, 100)), None),
        (((12, 100), (26, 700), (29, 700)), None),  # too short
        (((12, 700), (22, 700), (24, 100), (29, 300)), None),  # too long ago
        (((0, 700), (9, 700), (12, 700)), None),  # before the cell, and as it began
        (((29, 700),), None),
        ((), None),
    ],
)
def test_what_stays_level_until_the_end_is_what_was_in_use(
    points: tuple[tuple[float, int], ...], mib: int | None
) -> None:
    assert _seen(*points) == mib
