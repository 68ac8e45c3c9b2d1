"""Adds what is in use now to the timeline, with each report."""

from __future__ import annotations

import time

from tfgpu_magic import frameworks
from tfgpu_magic.config import cuda
from tfgpu_magic.insight.timeline import TIMELINE, Sample, levels


def sample() -> None:
    """Sample now, unless this process's GPU state is away (`parking`); some 10 µs a logical GPU."""
    if cuda.is_quiet():
        return
    found = frameworks.pools()
    TIMELINE.add(Sample(time.time(), levels((one.gpu, one.in_use, one.limit) for one in found)))
