"""What this session had in use of each GPU over time, and what each cell did: plain data that others read.

`publisher` adds a `Sample` about once a second while something may change, as long as the extension is loaded; while
cells are tracked, `tracker` adds one at each end of a cell, and a `CellUse`. Readers take what they need from
`TIMELINE`: `samples` and `cells`, each a tuple in the order of time.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.insight.measurement import PoolUse

SAMPLES, CELLS = 20_000, 10_000
"""How many are kept at most, the newest. A level line takes two samples, however long it is."""


class Level(NamedTuple):
    """What this process's frameworks have of one GPU at one time. Sizes are bytes.

    Attributes:
        gpu: the GPU's UUID.
        in_use: what their objects take, by their own account, together.
        limit: what their pools may take together; None where that is unknown, or nothing limits one of them.
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


class CellUse(NamedTuple):
    """What one cell did to GPU memory.

    Attributes:
        number: its number, as in ``In [5]``; None where it has none.
        title: its first line that is no import, magic or comment.
        began: when it began, in seconds since the epoch.
        ended: when it ended.
        pools: what happened in each pool.
        error: the name of the class of the error that ended it; empty where none did.
    """

    number: int | None
    title: str
    began: float
    ended: float
    pools: tuple[PoolUse, ...] = ()
    error: str = ""


class Timeline:
    """The record of a session. Thread-safe."""

    def __init__(self, samples: Iterable[Sample] = (), cells: Iterable[CellUse] = ()) -> None:
        self._lock = threading.Lock()
        self._samples = deque(samples, SAMPLES)
        self._cells = deque(cells, CELLS)

    def samples(self) -> tuple[Sample, ...]:
        """Return what was sampled."""
        with self._lock:
            return tuple(self._samples)

    def cells(self) -> tuple[CellUse, ...]:
        """Return what each tracked cell did."""
        with self._lock:
            return tuple(self._cells)

    def add(self, sample: Sample) -> None:
        """Add a sample; of equal ones in a row the first and the last stay."""
        with self._lock:
            kept = self._samples
            if len(kept) > 1 and kept[-1].levels == kept[-2].levels == sample.levels:
                kept.pop()
            if sample.levels or kept:  # nothing is kept before a GPU is used
                kept.append(sample)

    def add_cell(self, cell: CellUse) -> None:
        """Add a cell that has ended."""
        with self._lock:
            self._cells.append(cell)


def levels(pools: Iterable[tuple[str, int, int | None]]) -> tuple[Level, ...]:
    """Return the level of each GPU.

    Args:
        pools: the GPU, what is in use and the limit of each pool.
    """
    found: dict[str, Level] = {}
    for gpu, in_use, limit in pools:
        other = found.get(gpu)
        if other is not None:
            in_use += other.in_use
            limit = None if limit is None or other.limit is None else limit + other.limit
        found[gpu] = Level(gpu, in_use, limit)
    return tuple(found.values())


TIMELINE = Timeline()
"""The record of this process."""
