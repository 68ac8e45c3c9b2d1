"""What this session had in use of each GPU over time, and what each cell did: plain data that others read.

`sampling` adds a `Sample` about once a second while something may change, as long as the extension is loaded; while
cells are tracked, `tracker` adds one at each end of a cell, and a `CellUse`. Readers take what they need from
`TIMELINE`: `samples`, `cells` and `failures`, each a tuple in the order of time.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tfgpu_magic.insight.usage import PoolUse

if TYPE_CHECKING:
    from collections.abc import Iterable

RECENT, OLDER, CELLS, FAILURES = 1800, 1800, 10_000, 10
"""How many are kept at most: of the newest samples, of those before, which are the further apart the longer the session
is, of cells and of failures. A level line takes two samples, however long it is."""

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
        self._older, self._recent = list(samples), deque[Sample]()
        self._apart = 1.0  # seconds for which one of the older samples stands
        self._cells = deque(cells, CELLS)
        self._failures = deque(failures, FAILURES)

    def samples(self, seconds: float | None = None) -> tuple[Sample, ...]:
        """Return what was sampled in the last seconds; all of it where None is said."""
        with self._lock:
            return self._last(math.inf if seconds is None else seconds)

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
            kept = self._recent
            if len(kept) > 1 and kept[-1].levels == kept[-2].levels == sample.levels:
                kept.pop()
            if sample.levels or kept:  # nothing is kept before a GPU is used
                kept.append(sample)
            if len(kept) > RECENT:
                self._age(kept.popleft())

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
            samples = self._last(BEFORE_FAILURE)
            self._failures.append(Failure(time=time.time(), number=number, samples=samples))

    def _last(self, seconds: float) -> tuple[Sample, ...]:
        since = time.time() - seconds
        return tuple(one for one in (*self._older, *self._recent) if one.time >= since)

    def _age(self, sample: Sample) -> None:
        """Add a sample to the older ones; of those that one is to stand for, that with most in use does."""

        def place(one: Sample) -> int:
            return int(one.time // self._apart)

        older = self._older
        if older and place(older[-1]) == place(sample):
            older[-1] = max(older[-1], sample, key=_in_use)
        else:
            older.append(sample)
        while len(older) > OLDER:
            self._apart *= 2
            older[:] = [max(there, key=_in_use) for _, there in groupby(older, place)]

    def to_dict(self) -> dict[str, Any]:
        """Return it as what JSON can write."""
        return {
            "samples": [dataclasses.asdict(one) for one in self.samples()],
            "cells": [dataclasses.asdict(one) for one in self.cells()],
            "failures": [dataclasses.asdict(one) for one in self.failures()],
        }

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


def _in_use(sample: Sample) -> int:
    return sum(level.in_use for level in sample.levels)


def _samples(found: Iterable[Any]) -> tuple[Sample, ...]:
    return tuple(Sample(one["time"], tuple(Level(**level) for level in one["levels"])) for one in found)


TIMELINE = Timeline()
"""The record of this process."""
