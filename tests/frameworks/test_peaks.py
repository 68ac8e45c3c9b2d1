"""One counter, many readers: each has the peak since its own beginning, whoever resets the counter in between."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgpu_magic.frameworks.base import Framework
from tfgpu_magic.frameworks.peaks import SharedPeaks
from tfgpu_magic.frameworks.pool import Pool


class One(Framework):
    """A framework with one pool."""

    name = "One"

    def __init__(self, *, resets: bool = True) -> None:
        self.resets = resets
        self.in_use = self.peak = self.times_reset = 0
        self.awake = True
        self.between: Callable[[Callable[[], None]], None] = lambda reset: reset()

    def pools(self) -> list[Pool]:
        peak = self.peak
        pool = Pool(framework=self.name, name="GPU:0", gpu="GPU-0", in_use=self.in_use, peak=peak, counted=peak)
        return [pool] if self.awake else []

    def reset_peaks(self) -> None:
        assert self.resets
        self.times_reset += 1
        self.peak = self.in_use

    def share_peaks(self, between: Callable[[Callable[[], None]], None]) -> None:
        self.between = between

    def use(self, size: int) -> None:
        self.in_use = size
        self.peak = max(self.peak, size)


@given(st.lists(st.one_of(st.integers(0, 9), st.sampled_from(["begin", "end", "reset", "read"]))))
def test_every_reader_has_the_highest_since_it_began(steps: list[int | str]) -> None:
    pool = One()
    peaks = SharedPeaks(pool)
    peaks.end(peaks.begin())  # from the first on, the resets of others are known
    history: list[int] = [0]
    readers = [(peaks.session, 0)]
    for step in steps:
        if isinstance(step, int):
            pool.use(step)
            history.append(step)
        elif step == "begin":
            readers.append((peaks.begin(), len(history) - 1))
        elif step == "end" and len(readers) > 1:
            mark, since = readers.pop(len(readers) // 2 or 1)
            assert peaks.end(mark)[0].peak == max(history[since:])
        elif step == "reset":
            pool.between(pool.reset_peaks)
        for mark, since in readers:
            assert peaks.read(mark)[0].peak == max(history[since:])


def test_the_counter_is_reset_only_where_that_changes_it() -> None:
    pool = One()
    peaks = SharedPeaks(pool)
    pool.use(5)
    peaks.end(peaks.begin())
    assert pool.times_reset == 0

    pool.use(3)
    peaks.end(peaks.begin())
    peaks.end(peaks.begin())
    assert pool.times_reset == 1


def test_a_pool_that_comes_later_counts_from_its_own_beginning() -> None:
    pool = One()
    pool.awake = False
    peaks = SharedPeaks(pool)
    outer = peaks.begin()
    pool.awake = True
    pool.use(7)
    inner = peaks.begin()
    pool.use(3)

    assert outer.began == {}
    assert (peaks.end(inner)[0].peak, peaks.end(outer)[0].peak) == (7, 7)


def test_a_counter_that_cannot_be_reset_tells_a_peak_only_where_it_rose() -> None:
    pool = One(resets=False)
    pool.use(5)
    pool.use(1)
    peaks = SharedPeaks(pool)
    lower, higher = peaks.begin(), peaks.begin()
    pool.use(3)
    below = peaks.end(lower)[0]
    pool.use(8)
    above = peaks.end(higher)[0]

    assert (below.peak, below.exact) == (5, False)
    assert (above.peak, above.exact) == (8, True)


def test_a_mark_is_ended_also_where_the_framework_fails() -> None:
    pool = One()
    peaks = SharedPeaks(pool)
    mark = peaks.begin()
    pool.pools = lambda: 1 // 0  # type: ignore[assignment, method-assign, return-value]

    with pytest.raises(ZeroDivisionError):
        peaks.end(mark)

    assert peaks._marks == [peaks.session]


def test_threads_begin_and_end_beside_one_another() -> None:
    pool = One()
    peaks = SharedPeaks(pool)
    pool.use(4)
    found: list[int] = []

    def reader() -> None:
        found.extend(peaks.end(peaks.begin())[0].peak for _ in range(200))

    threads = [threading.Thread(target=reader) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(found) == {4}
    assert peaks._marks == [peaks.session]
