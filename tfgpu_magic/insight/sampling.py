"""Adds what is in use now to the timeline: `publisher` does so with each report, `tracker` at each end of a cell."""

from __future__ import annotations

import time

from tfgpu_magic import frameworks
from tfgpu_magic.insight.timeline import TIMELINE, Sample, levels


def sample() -> None:
    """Sample now; some 10 µs a logical GPU."""
    TIMELINE.add(Sample(time.time(), levels(frameworks.counters())))


def keep_if_out_of_memory(error: BaseException, number: int | None) -> None:
    """Keep the last minutes for good, if a cell's error says that a GPU has no memory left.

    Args:
        error: the error.
        number: the cell's number, if that is known.
    """
    if frameworks.out_of_memory(error):
        sample()
        TIMELINE.keep(number)
