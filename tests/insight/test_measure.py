"""`measure` beside the driver, the framework's start and other readers: nobody sees another peak for it.

`@measure` measures each call of a function. Measurements in threads are in `test_peaks.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any
from unittest import mock

import pytest

import tfgpu_magic
from tests.insight.programs import take
from tests.insight.shell import patiently
from tests.machines import machine_of
from tests.processes import on, run
from tests.sizes import CONTEXT, MIB
from tests.tf.on_machine import held, here
from tfgpu_magic.frameworks import registry
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.insight.measurement import Measurement
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x16GiB")


def ready(words: str = "growth") -> None:
    """Have TensorFlow use the GPU under a policy."""
    patiently()
    tfgpu_magic.apply(words)
    take(1)


def reset() -> None:
    """Reset TensorFlow's peak, as its users do."""
    import tensorflow as tf

    tf.config.experimental.reset_memory_stats("GPU:0")


def peak() -> int:
    """Return TensorFlow's peak by its own function."""
    import tensorflow as tf

    return int(tf.config.experimental.get_memory_info("/device:GPU:0")["peak"])


@pytest.mark.smoke
@on("1x16GiB")
def test_what_stays_and_what_the_driver_gives_are_told_beside_the_peak_and_a_neighbour_is_in_no_figure() -> None:
    ready()
    (before,) = held()
    measuring = tfgpu_magic.measure()
    with pytest.raises(RuntimeError, match="Nothing is measured yet"):
        measuring.peak  # noqa: B018

    with measuring as m:
        kept = take(128)
        assert 128 * MIB <= m.peak < 129 * MIB  # so far
        here().add_neighbour("2GiB@0")
        take(512)

    assert kept.shape
    assert 128 * MIB <= m.delta < 129 * MIB
    assert 640 * MIB <= m.peak < 642 * MIB
    assert m.held == held()[0] - before
    assert 512 * MIB < held()[0] - before < 1024 * MIB


@on("1x16GiB", imported=False)
def test_a_framework_that_is_imported_and_ready_in_the_block_has_its_peak_and_its_context() -> None:
    patiently()
    tfgpu_magic.apply("growth")

    with tfgpu_magic.measure() as m:
        take(256)
        reset()

    assert 256 * MIB <= m.peak < 258 * MIB  # though others have reset the counter
    assert m.result.started == ("TensorFlow",)
    assert (m.held or 0) >= 256 * MIB + CONTEXT
    assert "TensorFlow began to use the GPUs meanwhile" in repr(m)


@on("1x16GiB", imported=False)
def test_where_tensorflow_is_not_imported_or_not_started_it_is_not_for_it() -> None:
    patiently()

    with tfgpu_magic.measure() as m:
        pass

    assert "tensorflow" not in sys.modules
    assert (m.peak, m.delta, m.held, m.result.pools) == (0, 0, 0, ())
    assert "No framework uses a GPU here" in repr(m)
    import tensorflow  # noqa: F401

    with tfgpu_magic.measure():
        pass
    assert held() == [0]


def test_other_readers_see_the_peaks_that_they_would_see_without_it(machine: Machine) -> None:
    with_it, without = (run(machine, _others_peaks, measuring) for measuring in (True, False))

    (theirs, of_view), (after_a_reset, of_view_then) = with_it
    assert with_it == without
    assert theirs == of_view >= 900 * MIB
    assert 200 * MIB <= after_a_reset == of_view_then < 201 * MIB


def _others_peaks(measuring: bool) -> list[tuple[int, int]]:
    """Return the peak as TensorFlow's own function and as our own views tell it: before and after a reset."""

    def block() -> Any:
        return tfgpu_magic.measure(driver=False) if measuring else contextlib.nullcontext()

    def peaks() -> tuple[int, int]:
        ((_, of_view),) = registry.figures().values()
        return peak(), of_view.size

    ready("limit 4GiB")
    take(900)
    with block():
        take(100)
        with block():
            take(10)
    before = peaks()
    reset()
    take(200)
    with block():
        take(100)
    return [before, peaks()]


@on("1x16GiB")
def test_a_reset_by_others_within_changes_no_measurement() -> None:
    ready("limit 4GiB")

    with tfgpu_magic.measure(driver=False) as outer:
        take(700)
        with tfgpu_magic.measure(driver=False) as inner:
            take(300)
            reset()
            take(100)

    assert 700 * MIB <= outer.peak < 701 * MIB
    assert 300 * MIB <= inner.peak < 301 * MIB
    assert 100 * MIB <= peak() < 101 * MIB


@pytest.mark.parametrize("function", ["get_memory_info", "reset_memory_stats"])
@pytest.mark.parametrize("device", ["GPU:7", "nonsense"])
@on("1x16GiB")
def test_tensorflow_says_itself_what_is_wrong_with_a_device(function: str, device: str) -> None:
    import tensorflow as tf

    ready()
    with tfgpu_magic.measure(driver=False), pytest.raises(ValueError):
        getattr(tf.config.experimental, function)(device)


@on("1x16GiB")
def test_a_driver_that_does_not_answer_leaves_the_rest_and_says_so() -> None:
    ready("limit 1GiB")
    mute = Snapshot(time=0.0, error="it hangs")

    with mock.patch("tfgpu_magic.insight.measuring.look", return_value=mute), tfgpu_magic.measure() as m:
        take(10)

    assert m.peak > 0
    assert m.held is None
    assert "What the driver gave is not known: it hangs" in repr(m)


@on("1x16GiB")
def test_a_decorated_function_reports_each_call_and_returns_and_raises_its_own() -> None:
    ready("limit 4GiB")
    reports: list[Measurement] = []

    @tfgpu_magic.measure(driver=False, report=reports.append)
    def double(mib: int, depth: int) -> int:
        take(mib)
        if depth:
            double(mib // 2, depth - 1)
        return 42 // (mib != 192)

    @tfgpu_magic.measure(driver=False, report=reports.append)
    async def later() -> None:
        await asyncio.sleep(0)
        take(256)

    assert double(128, 1) == 42
    asyncio.run(later())
    with pytest.raises(ZeroDivisionError):
        double(192, 0)

    assert [(one.what.rpartition(".")[2], round(one.peak / MIB), one.error) for one in reports] == [
        ("double", 64, ""),
        ("double", 128, ""),
        ("later", 256, ""),
        ("double", 192, "ZeroDivisionError"),
    ]


def test_a_measurement_that_has_begun_is_not_begun_again() -> None:
    with tfgpu_magic.measure(driver=False) as m:
        with pytest.raises(RuntimeError, match="has begun already"), m:
            pass
        assert m.seconds >= 0
    with m:  # it has ended
        pass


def test_a_generator_function_is_refused_since_its_call_does_nothing() -> None:
    with pytest.raises(TypeError, match="Measure the loop"):

        @tfgpu_magic.measure
        def numbers() -> Any:
            yield 1
