"""What this session had in use of each GPU over time, and what each cell did: plain data that others read.

`publisher` adds a sample about once a second while something may change, as long as the extension is loaded. While
cells are tracked, `tracker` adds one at each end of a cell, and the cell's `Measurement`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.frameworks.pool import Pool
    from tfgpu_magic.insight.measurement import Measurement, PoolUse

SAMPLES, CELLS = 20_000, 10_000
"""How many are kept at most, the newest. A level line takes two samples, however long it is."""


class Level(NamedTuple):
    """What this process's frameworks have of one GPU at one time. Sizes are bytes.

    Attributes:
        gpu: the GPU's UUID.
        in_use: what their objects take, by their own account, together.
        limit: what their pools may take together; None if that is unknown, or nothing limits one of them.
    """

    gpu: str
    in_use: int
    limit: int | None


class Sample(NamedTuple):
    """The levels at one time.

    Attributes:
        time: seconds since the epoch.
        levels: a `Level` for each GPU that is used.
    """

    time: float
    levels: tuple[Level, ...]


class Timeline:
    """The record of a session. Thread-safe."""

    def __init__(self, samples: Iterable[Sample] = (), cells: Iterable[Measurement] = ()) -> None:
        self._lock = threading.Lock()
        self._samples = deque(samples, SAMPLES)
        self._cells = deque(cells, CELLS)

    def samples(self) -> tuple[Sample, ...]:
        """Return what was sampled, in the order of time."""
        with self._lock:
            return tuple(self._samples)

    def cells(self) -> tuple[Measurement, ...]:
        """Return what each tracked cell did, in the order of time."""
        with self._lock:
            return tuple(self._cells)

    def sample(self, pools: Iterable[Pool | PoolUse]) -> None:
        """Add what is in use of each GPU now, from the counters of all pools."""
        levels: dict[str, Level] = {}
        for pool in pools:
            other = levels.get(pool.gpu, Level(pool.gpu, 0, 0))
            limit = None if pool.limit is None or other.limit is None else pool.limit + other.limit
            levels[pool.gpu] = Level(pool.gpu, other.in_use + pool.in_use, limit)
        self.add(Sample(time.time(), tuple(levels.values())))

    def add(self, sample: Sample) -> None:
        """Add a sample. Of equal samples in a row, the first and the last stay."""
        with self._lock:
            kept = self._samples
            if len(kept) > 1 and kept[-1].levels == kept[-2].levels == sample.levels:
                kept.pop()
            if sample.levels or kept:  # nothing is kept before a GPU is used
                kept.append(sample)

    def add_cell(self, cell: Measurement) -> None:
        """Add a cell that has ended."""
        with self._lock:
            self._cells.append(cell)


TIMELINE = Timeline()
"""The record of this process."""
