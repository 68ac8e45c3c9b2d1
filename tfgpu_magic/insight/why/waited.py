"""Reads from the samples what was in use while a framework waited for memory. Pure."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.insight.timeline import Sample

LEAST = 5.0
"""Seconds for which what is in use has to stay level: TensorFlow's pool waits ten for memory before it gives up
(`gpu_bfc_allocator.cc`, `allocator_retry.cc`), and the samples are about a second apart."""


def in_use(samples: Iterable[Sample], gpu: str, since: float, until: float) -> int | None:
    """Return the bytes that were in use of a GPU while its framework waited for more; None where that was not seen.

    Args:
        samples: in the order of time; of equal ones in a row the first and the last are enough.
        gpu: the GPU's UUID.
        since: when what failed began, in seconds since the epoch: before, nothing waited.
        until: when it had failed.
    """
    seen = [
        (level.in_use, sample.time)
        for sample in samples
        if sample.time <= until
        for level in sample.levels
        if level.gpu == gpu
    ]
    runs = [[*same] for _, same in groupby(seen, lambda point: point[0])]
    for run in reversed(runs):
        (size, first), (_, last) = run[0], run[-1]
        if last < until - LEAST:
            break
        if last - max(first, since) >= LEAST:
            return size
    return None
