"""What the reader makes of a driver's figures of use: percentages, samples of processes, sensors, and oddities."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.sizes import GIB
from tfgpu_magic.monitor.nvml import Reader
from tfgpu_magic.monitor.readers import fill_in

from .driver import COMPUTE, Device, Driver

PROCESSES = "nvmlDeviceGetProcessUtilization"
POWER = "nvmlDeviceGetPowerUsage"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    lists: dict[str, list[tuple[int, ...]]] = {COMPUTE: [(10, GIB), (11, GIB), (12, GIB)]}
    return Driver(Device(utilisation=40, samples=[], celsius=54, milliwatts=61_500, lists=lists)).install(monkeypatch)


def percentages(reader: Reader) -> dict[int, int | None]:
    return {process.pid: process.utilisation for process in reader.read(graphics=False).processes}


def test_a_process_with_a_new_sample_uses_the_gpu_and_the_others_do_not(driver: Driver) -> None:
    device = driver.devices[0]
    at = int(1e6 * time.time()) - 1000
    device.samples = [(10, at, 30, 5, 0, 0), (10, at + 2, 20, 5, 0, 0), (11, at + 1, 0, 0, 3, 0)]
    with Reader() as reader:
        first = percentages(reader)
        device.samples.append((12, at + 3, 50, 0, 0, 0))
        second = percentages(reader)
        third = percentages(reader)

    assert first == {10: 20, 11: 1, 12: 0}  # the newest of two; what uses the codecs alone uses the GPU
    assert second == {10: 0, 11: 0, 12: 50}
    assert third == {10: 0, 11: 0, 12: 0}
    assert driver.calls[PROCESSES] == 3


def test_what_the_driver_has_kept_from_before_the_first_reading_is_no_use_now(driver: Driver) -> None:
    now = int(1e6 * time.time())
    driver.devices[0].samples = [(10, now - 60 * 10**6, 30, 5, 0, 0), (11, now - 10**6, 30, 5, 0, 0)]

    assert percentages(Reader()) == {10: 0, 11: 30, 12: 0}


def test_a_driver_that_counts_from_its_own_start_is_understood(driver: Driver) -> None:
    device = driver.devices[0]
    device.samples = [(10, 1000, 30, 5, 0, 0)]
    with Reader() as reader:
        first = percentages(reader)
        device.samples.append((11, 3000, 50, 0, 0, 0))
        second = percentages(reader)

    assert (first, second) == ({10: 30, 11: 0, 12: 0}, {10: 0, 11: 50, 12: 0})


def test_a_driver_that_does_not_tell_leaves_it_unknown(driver: Driver) -> None:
    driver.devices[0].samples = None
    driver.devices[0].utilisation = None

    snapshot = Reader().read()

    assert snapshot.gpus[0].utilisation is None
    assert [process.utilisation for process in snapshot.processes] == [None] * 3


@pytest.mark.parametrize("sample", [(0, 1000, 50, 0, 0, 0), (10, 1000, 2**31, 0, 0, 0), (10, 1000, 40, 101, 0, 0)])
def test_samples_that_cannot_be_are_left_out(driver: Driver, sample: tuple[int, int, int, int, int, int]) -> None:
    driver.devices[0].samples = [sample]

    assert percentages(Reader()) == {10: 0, 11: 0, 12: 0}


def test_a_sample_of_the_future_hides_no_later_one(driver: Driver) -> None:
    now = int(1e6 * time.time())
    driver.devices[0].samples = [(10, now + 10**12, 50, 0, 0, 0)]
    with Reader() as reader:
        percentages(reader)
        driver.devices[0].samples = [(11, now + 10**6, 50, 0, 0, 0)]

        assert percentages(reader)[11] == 50


def test_more_samples_than_there_is_room_for_are_read_whole(driver: Driver) -> None:
    device = driver.devices[0]
    device.lists = {COMPUTE: [(pid, GIB // 100) for pid in range(1, 300)]}
    device.samples = [(pid, 1000, 7, 0, 0, 0) for pid in range(1, 300)]

    assert set(percentages(Reader()).values()) == {7}


def test_nobody_is_sampled_where_nobody_is_listed(driver: Driver) -> None:
    driver.devices[0].lists = {}
    Reader().read()

    assert driver.calls[PROCESSES] == 0


def test_sensors_are_read_with_the_graphics_processes_and_kept_in_between(driver: Driver) -> None:
    with Reader() as reader:
        whole = reader.read()
        lists = reader.read(graphics=False)
        memory = reader.read(processes=False)

    assert driver.calls[POWER] == 1
    assert (whole.gpus[0].temperature, whole.gpus[0].power, whole.gpus[0].utilisation) == (54, 61_500, 40)
    second = fill_in(lists, whole, processes=True, graphics=False)
    third = fill_in(memory, second, processes=False, graphics=False)
    assert [(one.gpus[0].temperature, one.gpus[0].power) for one in (second, third)] == [(54, 61_500)] * 2


def test_the_use_of_a_gpu_is_of_its_own_reading(driver: Driver) -> None:
    with Reader() as reader:
        whole = reader.read()
        driver.devices[0].utilisation = 90
        memory = fill_in(reader.read(processes=False), whole, processes=False, graphics=False)

    assert memory.gpus[0].utilisation == 90
    assert [row.utilisation for row in memory.processes] == [0, 0, 0]


def test_sensors_of_a_gpu_that_fails_are_gone(driver: Driver) -> None:
    with Reader() as reader:
        whole = reader.read()
        driver.devices[0].codes = {"nvmlDeviceGetMemoryInfo_v2": 15}
        failed = fill_in(reader.read(processes=False), whole, processes=False, graphics=False)

    assert replace(failed.gpus[0], error=None).temperature is None
