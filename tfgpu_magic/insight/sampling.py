"""Adds what is in use now to the timeline: for `publisher` with each report, for `reporter` where memory ran out."""

from __future__ import annotations

import time

from tfgpu_magic import frameworks
from tfgpu_magic.config import cuda
from tfgpu_magic.insight.timeline import TIMELINE, Sample, levels


def sample() -> None:
    """Sample now, unless this process's GPU state is away (`parking`); some 10 µs a logical GPU."""
    if cuda.is_quiet():
        return
    found = frameworks.counters()
    TIMELINE.add(Sample(time.time(), levels((one.gpu, one.in_use, one.limit) for one in found)))


def keep_if_out_of_memory(error: BaseException, number: int | None) -> None:
    """Keep the last minutes for good, if a cell's error says that a GPU has no memory left.

    Args:
        error: the error.
        number: the cell's number, if that is known.
    """
    if frameworks.out_of_memory(error):
        sample()
        TIMELINE.keep(number)
