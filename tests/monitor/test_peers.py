"""gpustat and nvitop, on the same simulated machine, see what we see."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.sizes import MIB
from tfgpu_magic.monitor.driver.look import look

if TYPE_CHECKING:
    from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.nightly

NVITOP = """
import json
from nvitop import Device
print(json.dumps([
    {"used": gpu.memory_used(), "total": gpu.memory_total(), "free": gpu.memory_free(),
     "held": {pid: process.gpu_memory() for pid, process in gpu.processes().items()}}
    for gpu in Device.all()
]))
"""


@pytest.fixture
def busy(machine: Machine) -> Machine:
    for share in ("9GiB@0", "3GiB@0", "1234MiB@1", "14GiB@3"):
        machine.add_neighbour(share)
    return machine


def test_gpustat_agrees_to_the_mib(busy: Machine) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "gpustat", "--json"]
    theirs = json.loads(busy.run(command, capture_output=True, text=True, check=True).stdout)["gpus"]
    ours = look(10)

    assert [(gpu["memory.used"], gpu["memory.total"]) for gpu in theirs] == [
        ((gpu.used or 0) // MIB, (gpu.total or 0) // MIB) for gpu in ours.gpus
    ]
    assert sorted(
        (str(gpu["index"]), process["pid"], process["gpu_memory_usage"])
        for gpu in theirs
        for process in gpu["processes"]
    ) == sorted((row.gpu, row.pid, (row.held or 0) // MIB) for row in ours.processes)


def test_nvitop_draws_its_screen(busy: Machine) -> None:
    busy.add_neighbour("700MiB@1", name="python train.py")
    shown = busy.run([sys.executable, "-m", "nvitop", "--once"], capture_output=True, text=True, check=True).stdout

    assert "1934MiB / 16384MiB" in shown  # 1234 and 700
    assert "python train.py" in shown


def test_nvitop_agrees_to_the_byte(busy: Machine) -> None:
    command = [sys.executable, "-W", "ignore", "-c", NVITOP]
    theirs = json.loads(busy.run(command, capture_output=True, text=True, check=True).stdout)
    ours = look(10)

    assert theirs == [
        {
            "used": gpu.used,
            "total": gpu.total,
            "free": gpu.free,
            "held": {str(row.pid): row.held for row in ours.processes if row.gpu == gpu.label},
        }
        for gpu in ours.gpus
    ]
