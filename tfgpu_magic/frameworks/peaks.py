"""The peak counters of a framework's pools, shared by readers that each count from a time of their own. Pure.

An allocator has one counter for each pool, which begins anew for everybody when anybody resets it. So what it has
counted is folded into every open `Mark` before each reset, whoever resets it. (What another thread takes and gives back
between that reading and the reset, within microseconds, is not seen: allocators cannot do both at once.)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """What a framework's allocator counts of one of its pools, in bytes.

    Attributes:
        name: the framework's name for the logical GPU, ``GPU:0``.
        gpu: the UUID of the GPU that it is on.
        in_use: what is allocated now.
        peak: the most that was allocated at once since the counter was last reset, or since a `Mark`.
        limit: what the pool may take; None where that is unknown, or nothing limits it.
        exact: whether the peak is that since the mark; else it is the most that it may have been.
    """

    name: str
    gpu: str
    in_use: int
    peak: int
    limit: int | None = None
    exact: bool = True


class Counting(Protocol):
    """What is needed of a framework to share its counters.

    Attributes:
        resets: whether its counters can be reset.
    """

    resets: bool

    def counters(self) -> Sequence[Counter]:
        """Return the counters of its pools; none while it uses no GPU."""

    def reset_peaks(self) -> None:
        """Reset its counters; what its own functions tell of them stays."""

    def share_peaks(self, between: Callable[[Callable[[], None]], None]) -> None:
        """Have the resets of others done by `between`, from its import on; called often, always with that function."""


@dataclass(slots=True)
class Mark:
    """The time from which on one reader counts.

    Attributes:
        began: the counters at that time, by name.
        highest: the highest peaks since then that were read before a reset, by name.
    """

    began: dict[str, Counter]
    highest: dict[str, int] = field(default_factory=dict)


class SharedPeaks:
    """The counters of one framework. Thread-safe.

    Attributes:
        session: a mark from the beginning of the process on.
    """

    def __init__(self, framework: Counting) -> None:
        self._framework = framework
        self._lock = threading.RLock()  # a garbage collection within may end a measurement of the same thread
        self.session = Mark({})
        self._marks = [self.session]

    def begin(self) -> Mark:
        """Begin to count from now on; `end` is to follow."""
        with self._lock:
            # Before the framework starts, so that a reset within its first cell is seen too.
            self._framework.share_peaks(self._between)
            counters = self._fold()
            # Where the peak is what is in use now, the counter begins anew as it is.
            if self._framework.resets and any(one.peak > one.in_use for one in counters):
                self._framework.reset_peaks()
            mark = Mark({one.name: one for one in counters})
            self._marks.append(mark)
            return mark

    def read(self, mark: Mark) -> tuple[Counter, ...]:
        """Return the counters now, with the peaks since a mark."""
        with self._lock:
            return tuple(self._since(mark, counter) for counter in self._framework.counters())

    def end(self, mark: Mark) -> tuple[Counter, ...]:
        """Return the same, and count no more; a mark may be ended twice."""
        with self._lock:
            try:
                return self.read(mark)
            finally:
                self._marks = [one for one in self._marks if one is not mark]

    def _between(self, reset: Callable[[], None]) -> None:
        """Reset counters for somebody else."""
        with self._lock:
            with contextlib.suppress(Exception):  # a framework that fails is to fail by its own function
                self._fold()
            reset()

    def _fold(self) -> Sequence[Counter]:
        """Note what was counted until now in every open mark, and return it."""
        counters = self._framework.counters()
        for mark in self._marks if self._framework.resets else ():
            for one in counters:
                mark.highest[one.name] = max(one.peak, mark.highest.get(one.name, 0))
        return counters

    def _since(self, mark: Mark, counter: Counter) -> Counter:
        if not self._framework.resets:
            # It has risen since, or it has stayed as high as it was before.
            before = mark.began.get(counter.name)
            return replace(counter, exact=before is None or counter.peak > before.peak)
        highest = mark.highest.get(counter.name, 0)
        return counter if counter.peak >= highest else replace(counter, peak=highest)
