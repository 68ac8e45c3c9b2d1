"""The peak counters of a framework's pools, shared by readers that each count from a time of their own. Pure.

An allocator has one counter for each pool, which begins anew for everybody when anybody resets it. So what it has
counted is folded into every open `Mark` before each reset, whoever resets it. (What another thread takes and gives back
between that reading and the reset, within microseconds, is not seen: allocators cannot do both at once.)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfgpu_magic.frameworks.base import Framework
    from tfgpu_magic.frameworks.pool import Pool


@dataclass(slots=True)
class Mark:
    """The time from which on one reader counts.

    Attributes:
        began: the counters at that time, by name.
        highest: the highest `Pool.counted` and `Pool.most` since then that were read before a reset, by name.
    """

    began: dict[str, Pool]
    highest: dict[str, tuple[int, int]] = field(default_factory=dict)


class SharedPeaks:
    """The counters of one framework. Thread-safe.

    Attributes:
        session: a mark from the beginning of the process on; resets of others are seen since this was made.
    """

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._lock = threading.RLock()  # a garbage collection within may end a measurement of the same thread
        self.session = Mark({})
        self._marks = [self.session]
        framework.share_peaks(self._between)

    def begin(self) -> Mark:
        """Begin to count from now on; `end` is to follow."""
        with self._lock:
            self._framework.share_peaks(self._between)  # it may be imported anew
            counters = self._fold()
            # Where the peak is what is in use now, the counter begins anew as it is.
            if self._framework.resets and any(one.counted > one.in_use for one in counters):
                self._framework.reset_peaks()
            mark = Mark({one.name: one for one in counters})
            self._marks.append(mark)
            return mark

    def read(self, mark: Mark) -> tuple[Pool, ...]:
        """Return the counters now, with the peaks since a mark."""
        with self._lock:
            return tuple(self._since(mark, counter) for counter in self._read())

    def end(self, mark: Mark) -> tuple[Pool, ...]:
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

    def _fold(self) -> Sequence[Pool]:
        """Note what was counted until now in every open mark, and return it."""
        counters = self._read()
        for mark in self._marks if self._framework.resets else ():
            for one in counters:
                mark.highest[one.name] = _highest(one, mark)
        return counters

    def _read(self) -> Sequence[Pool]:
        return [one for one in self._framework.pools() if one.touched]

    def _since(self, mark: Mark, counter: Pool) -> Pool:
        if not self._framework.resets:
            # It has risen since, or it has stayed as high as it was before.
            before = mark.began.get(counter.name)
            return counter._replace(exact=before is None or counter.peak > before.peak)
        peak, most = _highest(counter, mark)
        return counter._replace(peak=peak, most=most or None)


def _highest(counter: Pool, mark: Mark) -> tuple[int, int]:
    counted, most = mark.highest.get(counter.name, (0, 0))
    return max(counter.counted, counted), max(counter.most or 0, most)
