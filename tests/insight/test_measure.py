"""`measure` beside the driver, the framework's start and other readers: nobody sees another peak for it.

`@measure` measures each call of a function.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest import mock

import pytest

import tfgpu_magic
from tests.insight.programs import PATIENCE, take
from tests.insight.shell import patiently
from tests.machines import machine_of
from tests.processes import run
from tests.sizes import CONTEXT, MIB
from tests.tf.on_machine import held
from tfgpu_magic.insight.measurement import Measurement
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x16GiB")


@pytest.mark.smoke
def test_what_stays_and_what_the_driver_gives_are_told_beside_the_peak_and_a_neighbour_is_in_no_figure(
    machine: Machine,
) -> None:
    unbegun, so_far, m, before, after = run(machine, _kept_and_freed)

    assert "Nothing is measured yet" in unbegun
    assert 128 * MIB <= so_far < 129 * MIB
    assert 128 * MIB <= m.delta < 129 * MIB
    assert 640 * MIB <= m.peak < 642 * MIB
    assert m.held == after[0] - before[0]
    assert 512 * MIB < m.held < 1024 * MIB


def test_a_framework_that_is_imported_and_ready_in_the_block_has_its_peak_and_its_context(machine: Machine) -> None:
    m, text = run(machine, _first_use, imported=False)

    assert 256 * MIB <= m.peak < 258 * MIB  # though others have reset the counter
    assert m.started == ("TensorFlow",)
    assert m.held >= 256 * MIB + CONTEXT
    assert "TensorFlow began to use the GPUs meanwhile" in text


def test_where_tensorflow_is_not_imported_or_not_started_it_is_not_for_it(machine: Machine) -> None:
    modules, measured, text, held = run(machine, _without_tensorflow, imported=False)

    assert "tensorflow" not in modules
    assert (measured.peak, measured.delta, measured.held, measured.pools) == (0, 0, 0, ())
    assert "No framework uses a GPU here" in text
    assert held == [0]


def test_other_readers_see_the_peaks_that_they_would_see_without_it(machine: Machine) -> None:
    theirs, of_view = run(machine, _others_peaks, True)

    assert (theirs, of_view) == run(machine, _others_peaks, False)
    assert theirs[0] >= 900 * MIB
    assert 200 * MIB <= theirs[1] < 201 * MIB
    assert of_view == theirs


def test_a_reset_by_others_within_changes_no_measurement_and_tensorflow_says_itself_what_is_wrong_with_a_device(
    machine: Machine,
) -> None:
    outer, inner, afterwards, wrong = run(machine, _reset_within)

    assert 700 * MIB <= outer < 701 * MIB
    assert 300 * MIB <= inner < 301 * MIB
    assert 100 * MIB <= afterwards < 101 * MIB
    assert wrong == ["ValueError"] * 4


def test_a_driver_that_does_not_answer_leaves_the_rest_and_says_so(machine: Machine) -> None:
    peak, given, text = run(machine, _with_a_mute_driver)

    assert peak > 0
    assert given is None
    assert "What the driver gave is not known: it hangs" in text


def test_a_decorated_function_reports_each_call_and_returns_and_raises_its_own(machine: Machine) -> None:
    reports, value, error = run(machine, _decorated)

    assert [round(one.peak / MIB) for one in reports] == [64, 128, 256, 192]
    assert [one.what.rpartition(".")[2] for one in reports] == ["double", "double", "later", "double"]
    assert [one.error for one in reports] == ["", "", "", "ZeroDivisionError"]
    assert value == 42
    assert "by zero" in error


def test_calls_that_are_measured_in_threads_do_not_disturb_one_another(machine: Machine) -> None:
    peaks, base = run(machine, _in_threads)

    assert len(peaks) == 40
    assert all(peak >= base for peak in peaks)
    assert max(peaks) <= base + 4 * 17 * MIB


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


def _ready(words: str = "growth") -> None:
    patiently()
    tfgpu_magic.apply(words)
    take(1)


def _kept_and_freed() -> tuple[str, int, Measurement, list[int], list[int]]:
    _ready()
    current = Machine.current()
    assert current is not None
    before = held()
    measuring = tfgpu_magic.measure()
    with pytest.raises(RuntimeError) as unbegun:
        measuring.peak  # noqa: B018
    with measuring as m:
        kept = take(128)
        so_far = m.peak
        neighbour = current.add_neighbour("2GiB@0")
        take(512)
    after = held()
    neighbour.stop()
    del kept
    return str(unbegun.value), so_far, m.result, before, after


def _first_use() -> tuple[Measurement, str]:
    patiently()
    tfgpu_magic.apply("growth")
    with tfgpu_magic.measure() as m:
        import tensorflow as tf

        take(256)
        tf.config.experimental.reset_memory_stats("GPU:0")
    return m.result, repr(m)


def _without_tensorflow() -> tuple[set[str], Measurement, str, list[int]]:
    import sys

    patiently()
    with tfgpu_magic.measure() as m:
        pass
    modules = set(sys.modules)
    import tensorflow  # noqa: F401

    with tfgpu_magic.measure():
        pass
    return modules, m.result, repr(m), held()


def _others_peaks(measuring: bool) -> tuple[list[int], list[int]]:
    """Return the peak as TensorFlow's own function and as our own views tell it: before and after a reset."""
    import contextlib

    import tensorflow as tf

    from tfgpu_magic.frameworks import registry

    def block() -> Any:
        return tfgpu_magic.measure(driver=False) if measuring else contextlib.nullcontext()

    def theirs() -> int:
        return int(tf.config.experimental.get_memory_info("/device:GPU:0")["peak"])

    def views() -> int:
        return next(one.size for figures in registry.figures().values() for one in figures if one.peak)

    _ready("limit 4GiB")
    take(900)
    with block():
        take(100)
        with block():
            take(10)
    found = [(theirs(), views())]
    tf.config.experimental.reset_memory_stats("/device:GPU:0")
    take(200)
    with block():
        take(100)
    found.append((theirs(), views()))
    return [first for first, _ in found], [second for _, second in found]


def _reset_within() -> tuple[int, int, int, list[str]]:
    import tensorflow as tf

    _ready("limit 4GiB")
    with tfgpu_magic.measure(driver=False) as outer:
        take(700)
        with tfgpu_magic.measure(driver=False) as inner:
            take(300)
            tf.config.experimental.reset_memory_stats("GPU:0")
            take(100)
    theirs = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    wrong = []
    for ask in (tf.config.experimental.get_memory_info, tf.config.experimental.reset_memory_stats):
        for device in ("GPU:7", "nonsense"):
            try:
                ask(device)
            except ValueError as error:
                wrong.append(type(error).__name__)
    return outer.peak, inner.peak, theirs, wrong


def _with_a_mute_driver() -> tuple[int, int | None, str]:
    from tfgpu_magic.model.snapshot import Snapshot

    _ready("limit 1GiB")
    with (
        mock.patch("tfgpu_magic.insight.measuring.look", return_value=Snapshot(time=0.0, error="it hangs")),
        tfgpu_magic.measure() as m,
    ):
        take(10)
    return m.peak, m.held, repr(m)


def _decorated() -> tuple[list[Measurement], object, str]:
    tfgpu_magic.apply("limit 4GiB")
    import tensorflow as tf

    base = tf.config.experimental.get_memory_info("GPU:0")["current"]
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

    value = double(128, 1)
    asyncio.run(later())
    error = ""
    try:
        double(192, 0)
    except ZeroDivisionError as one:
        error = str(one)
    assert base < MIB
    return reports, value, error


def _in_threads() -> tuple[list[int], int]:
    import tensorflow as tf

    tfgpu_magic.apply("limit 4GiB")
    reports: list[Measurement] = []

    @tfgpu_magic.measure(driver=False, report=reports.append)
    def call() -> None:
        take(16)

    def many() -> None:
        for _ in range(10):
            call()

    base = tf.config.experimental.get_memory_info("GPU:0")["current"]
    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return [one.peak for one in reports], base + 16 * MIB
