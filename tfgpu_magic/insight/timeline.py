"""What this session had in use of each GPU over time, and what each cell did: plain data that others read.

`sampling` adds a `Sample` about once a second while something may change, as long as the extension is loaded; while
cells are tracked, `tracker` adds one at each end of a cell, and a `CellUse`. Readers take what they need from
`TIMELINE`: `samples`, `cells` and `failures`, each a tuple in the order of time.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfgpu_magic.insight.usage import PoolUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgpu_magic.frameworks.peaks import Counter

SAMPLES, CELLS, FAILURES = 3600, 10_000, 10
"""How many are kept of each; a level line takes two samples, however long it is."""

BEFORE_FAILURE = 600.0
"""Seconds before an out-of-memory error that are kept for good."""


@dataclass(frozen=True, slots=True)
class Level:
    """What this process's frameworks have of one GPU at one time. Sizes are bytes.

    Attributes:
        gpu: the GPU's UUID.
        in_use: what their objects take, by their own account, together.
        limit: what their pools may take together; None where that is unknown, or nothing limits one of them.
    """

    gpu: str
    in_use: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Sample:
    """The levels at one time.

    Attributes:
        time: seconds since the epoch.
        levels: a `Level` for each GPU that is used.
    """

    time: float
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellUse:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A GPU that ran out of memory, and the way there.

    Attributes:
        time: when, in seconds since the epoch.
        number: the cell in which it did; None where that is not known.
        samples: those of the last `BEFORE_FAILURE` seconds before.
    """

    time: float
    number: int | None
    samples: tuple[Sample, ...]


class Timeline:
    """The record of a session. Thread-safe."""

    def __init__(
        self, samples: Iterable[Sample] = (), cells: Iterable[CellUse] = (), failures: Iterable[Failure] = ()
    ) -> None:
        self._lock = threading.Lock()
        self._samples = deque(samples, SAMPLES)
        self._cells = deque(cells, CELLS)
        self._failures = deque(failures, FAILURES)

    def samples(self, seconds: float | None = None) -> tuple[Sample, ...]:
        """Return what was sampled in the last seconds; all of it where None is said."""
        with self._lock:
            return tuple(self._samples) if seconds is None else _last(self._samples, seconds)

    def cells(self) -> tuple[CellUse, ...]:
        """Return what each tracked cell did."""
        with self._lock:
            return tuple(self._cells)

    def failures(self) -> tuple[Failure, ...]:
        """Return the ways to each error for lack of memory."""
        with self._lock:
            return tuple(self._failures)

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

    def keep(self, number: int | None) -> None:
        """Keep the last minutes for good: a GPU ran out of memory just now.

        Args:
            number: the cell in which it did, if that is known.
        """
        with self._lock:
            samples = _last(self._samples, BEFORE_FAILURE)
            self._failures.append(Failure(time=time.time(), number=number, samples=samples))

    def to_dict(self) -> dict[str, Any]:
        """Return it as what JSON can write."""
        record = {"samples": self.samples(), "cells": self.cells(), "failures": self.failures()}
        return {name: [dataclasses.asdict(one) for one in found] for name, found in record.items()}

    @classmethod
    def from_dict(cls, record: Any) -> Timeline:
        """Make it again from what `to_dict` returned.

        Raises:
            ValueError: it is no such record.
        """
        try:
            cells = [
                CellUse(**(one | {"pools": tuple(PoolUse(**pool) for pool in one["pools"])})) for one in record["cells"]
            ]
            failures = [Failure(**(one | {"samples": _samples(one["samples"])})) for one in record["failures"]]
            return cls(_samples(record["samples"]), cells, failures)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not the record of a session: {error}") from error


def levels(counters: Iterable[Counter]) -> tuple[Level, ...]:
    """Return the level of each GPU, from the counters of all pools."""
    by_gpu: dict[str, list[Counter]] = {}
    for one in counters:
        by_gpu.setdefault(one.gpu, []).append(one)
    return tuple(Level(gpu, sum(one.in_use for one in pools), _limit(pools)) for gpu, pools in by_gpu.items())


def _limit(pools: Iterable[Counter]) -> int | None:
    limits = [one.limit for one in pools]
    return None if None in limits else sum(limit for limit in limits if limit is not None)


def _last(samples: Iterable[Sample], seconds: float) -> tuple[Sample, ...]:
    since = time.time() - seconds
    return tuple(one for one in samples if one.time >= since)


def _samples(found: Iterable[Any]) -> tuple[Sample, ...]:
    return tuple(Sample(one["time"], tuple(Level(**level) for level in one["levels"])) for one in found)


TIMELINE = Timeline()
"""The record of this process."""
