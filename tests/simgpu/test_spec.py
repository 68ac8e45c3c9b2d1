"""How people write a simulated machine."""

from __future__ import annotations

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.simgpu.spec import parse_driver, parse_fault, parse_gpus, parse_share


def test_gpus_are_counted_sized_and_named() -> None:
    gpus = parse_gpus("2x16GiB, 80GiB")

    assert [gpu.total for gpu in gpus] == [16 * GIB, 16 * GIB, 80 * GIB]
    assert [gpu.name for gpu in gpus] == ["Simulated GPU 16GiB", "Simulated GPU 16GiB", "Simulated GPU 80GiB"]
    assert [gpu.reserved for gpu in gpus] == [256 * MIB, 256 * MIB, 512 * MIB]


def test_options_change_a_gpu() -> None:
    [gpu] = parse_gpus("40GiB:sm=4:cc=7.5:mhz=900:mig=2:reserved=0MiB:mode=exclusive")

    assert (gpu.multiprocessors, gpu.capability, gpu.clock, gpu.mig, gpu.reserved) == (4, (7, 5), 900_000, 2, 0)
    assert gpu.mode == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x8GiB",
        "0x8GiB",
        "65x8GiB",
        "8",
        "8GiB:",
        "8GiB:sm",
        "8GiB:sm=0",
        "8GiB:cc=8",
        "8GiB:mig=8",
        "8GiB:mode=fair",
        "1MiB",
        "8GiB,",
    ],
)
def test_what_is_no_machine_is_refused(text: str) -> None:
    with pytest.raises(SimulatorError):
        parse_gpus(text)


def test_a_share_names_a_gpu_or_an_instance() -> None:
    assert parse_share("9GiB@0") == (9 * GIB, "0")
    assert parse_share("512MiB@1.2") == (512 * MIB, "1.2")
    with pytest.raises(SimulatorError, match="Write 9GiB@0"):
        parse_share("9GiB on 0")


def test_a_fault_names_a_function_a_value_and_perhaps_a_gpu() -> None:
    assert parse_fault("nvmlInit=9") == ("nvmlInit", "9", None)
    assert parse_fault("nvmlDeviceGetName=0.5@3") == ("nvmlDeviceGetName", "0.5", 3)
    with pytest.raises(SimulatorError, match="is no fault"):
        parse_fault("nvmlInit")


def test_a_driver_is_a_version() -> None:
    assert parse_driver("595.71.05") == "595.71.05"
    with pytest.raises(SimulatorError, match="is no version of a driver"):
        parse_driver("595")
