"""What the stand-in for NVML tells of use: by the kernels that programs launch, or as the machine is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.machines import machine_of
from tests.processes import program, run
from tests.simgpu.on_machine import launched, nvml, trained
from tests.waiting import until

if TYPE_CHECKING:
    from tfgpu_magic.simgpu import Machine

NOT_SUPPORTED, NOT_FOUND = 3, 6
machine = machine_of("2x8GiB,40GiB:mig=2", scope="function")


def rates(machine: Machine, gpu: int) -> Any:
    """Return the utilisation of a GPU in percent, or an error's code."""
    answer = run(machine, nvml, gpu, "nvmlDeviceGetUtilizationRates")
    return answer["gpu"] if isinstance(answer, dict) else answer


def samples(machine: Machine, gpu: int, since: int = 0) -> Any:
    """Return each process's last sample on a GPU as (pid, percent), or an error's code."""
    answer = run(machine, nvml, gpu, "nvmlDeviceGetProcessUtilization", since)
    return [(pid, percent) for pid, _, percent, *_ in answer] if isinstance(answer, list) else answer


def test_a_process_that_launches_kernels_uses_its_gpu_for_a_moment_and_no_other(machine: Machine) -> None:
    machine.add_neighbour("1GiB@1")
    with program(machine, launched) as busy:
        assert samples(machine, 0) == [(busy.pid, 100)]
        assert samples(machine, 1) == NOT_FOUND
        until(lambda: rates(machine, 0) == 0)
        assert samples(machine, 0) == [(busy.pid, 100)]  # it is there for those who have not read it
        last = run(machine, nvml, 0, "nvmlDeviceGetProcessUtilization", 0)[0][1]
        assert samples(machine, 0, last) == NOT_FOUND


def test_what_tensorflow_computes_is_use(machine: Machine) -> None:
    with program(machine, trained) as busy:
        assert samples(machine, 0) == [(busy.pid, 100)]


def test_what_the_machine_is_told_is_what_nvml_tells(machine: Machine) -> None:
    neighbour = machine.add_neighbour("1GiB@0")
    row = machine.add_row(4242, 0, "1GiB")
    machine.use(neighbour.pid, 40)
    machine.use(row.pid, 7)
    machine.sense(1, utilisation=12, celsius=54, watts=61.5)

    assert (rates(machine, 0), rates(machine, 1)) == (40, 12)
    assert sorted(samples(machine, 0)) == sorted([(neighbour.pid, 40), (4242, 7)])
    assert run(machine, nvml, 1, "nvmlDeviceGetTemperature", 0) == 54
    assert run(machine, nvml, 1, "nvmlDeviceGetPowerUsage") == 61_500
    machine.use(neighbour.pid, None)
    assert samples(machine, 0) == [(4242, 7)]


@pytest.mark.parametrize("function", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature"])
def test_a_gpu_has_no_sensors_unless_it_is_told(machine: Machine, function: str) -> None:
    sensor = (0,) if "Temperature" in function else ()

    assert run(machine, nvml, 0, function, *sensor) == NOT_SUPPORTED


def test_mig_has_no_utilisation(machine: Machine) -> None:
    assert (rates(machine, 2), samples(machine, 2)) == (NOT_SUPPORTED, NOT_SUPPORTED)
