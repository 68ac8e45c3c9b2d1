"""One counter, many readers: each has the peak since its own beginning, whoever resets the counter in between."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfgpu_magic
from tests.frameworks.cells_on_machine import stand_in
from tests.processes import on
from tests.sizes import GIB, MIB
from tests.tf.on_machine import here
from tfgpu_magic.frameworks import cuda, registry
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
        return [pool._replace(most=peak)] if self.awake else []

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
        assert (peaks.read(peaks.session)[0].most or 0) == max(history)


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


# --- the counters of PyTorch and JAX, with stand-ins for them ---


def theirs(device: int | None = None) -> int:
    peak: int = sys.modules["torch"].cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["peak"]
    return peak


@on("2x8GiB", imported=False)
def test_pytorch_is_measured_by_gpu_and_its_own_functions_tell_the_same_as_before() -> None:
    memory = sys.modules["torch.cuda.memory"] = ModuleType("torch.cuda.memory")
    torch = stand_in()
    torch.zeros(900 * MIB)
    kept = torch.zeros(100 * MIB)
    with tfgpu_magic.measure(driver=False) as outer:
        more = torch.zeros(200 * MIB)
        with tfgpu_magic.measure(driver=False) as inner:
            del more
            torch.zeros(100 * MIB)
            torch.zeros(50 * MIB, "cuda:1")

    assert [(one.name, one.before, one.peak) for one in inner.result.pools] == [
        ("cuda:0", 300 * MIB, 300 * MIB),
        ("cuda:1", 0, 50 * MIB),
    ]
    assert [one.gpu for one in inner.result.pools] == [gpu.uuid for gpu in here().gpus()]
    assert outer.peak == 300 * MIB
    assert (theirs(), theirs(1)) == (900 * MIB, 50 * MIB)
    assert memory.memory_stats_as_nested_dict(0)["reserved_bytes_by_private_pools"][0, 1]["all"]["peak"] == 900 * MIB
    assert kept


@on("1x8GiB", imported=False)
def test_a_framework_that_fails_leaves_the_others_their_figures() -> None:
    torch = stand_in()
    torch.zeros(MIB)
    torch.cuda._now = {}
    with tfgpu_magic.measure(driver=False) as m:
        pass

    assert m.result.pools == ()
    assert {*registry.session_peaks()} >= {"TensorFlow", "JAX"}


def test_jax_tells_a_peak_only_where_it_is_higher_than_before_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stats = {"bytes_in_use": MIB, "peak_bytes_in_use": 900 * MIB, "bytes_limit": 2 * GIB}
    device = SimpleNamespace(local_hardware_id=0, memory_stats=lambda: stats)
    bridge = ModuleType("jax._src.xla_bridge")
    bridge._backends = {"cuda": SimpleNamespace(local_devices=lambda: [device])}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    monkeypatch.setattr(cuda, "visible_gpus", lambda: ("GPU-a",))

    with tfgpu_magic.measure(driver=False) as low:
        stats["bytes_in_use"] = 3 * MIB
    with tfgpu_magic.measure(driver=False) as high:
        stats["peak_bytes_in_use"] = 1000 * MIB

    assert (low.peak, low.delta, low.result.pools[0].exact) == (900 * MIB, 2 * MIB, False)
    assert "peak at most 900 MiB, 2 MiB stayed" in repr(low)
    assert "JAX's peak cannot be counted anew: it was not higher than before." in repr(low)
    assert (high.peak, high.result.pools[0].exact) == (1000 * MIB, True)
