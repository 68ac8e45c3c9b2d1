"""`@measure` measures each call of a function, with the real TensorFlow."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import tfgpu_magic
from tests.insight.programs import PATIENCE, take
from tests.machines import machine_of
from tests.processes import run
from tests.sizes import MIB
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.views.measurement import Measurement

machine = machine_of("1x16GiB")


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


def test_a_generator_function_is_refused_since_its_call_does_nothing() -> None:
    with pytest.raises(TypeError, match="Measure the loop"):

        @tfgpu_magic.measure
        def numbers() -> Any:
            yield 1


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
