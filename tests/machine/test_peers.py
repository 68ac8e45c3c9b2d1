"""gpustat and nvitop, on the same simulated machine, see what we see."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.sizes import MIB
from tfgpu_magic.machine.see import look

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


GPUSTAT = ("-W", "ignore", "-m", "gpustat", "--json")


def mib(size: int | None) -> int:
    return (size or 0) // MIB


def told(machine: Machine, *words: str) -> Any:
    return json.loads(machine.run([sys.executable, *words], capture_output=True, text=True, check=True).stdout)


def test_gpustat_agrees_to_the_mib_and_nvitop_to_the_byte(machine: Machine) -> None:
    for share in ("9GiB@0", "3GiB@0", "1234MiB@1", "14GiB@1"):
        machine.add_neighbour(share)
    ours = look(10)
    held = {gpu.label: {str(row.pid): row.held for row in ours.processes if row.gpu == gpu.label} for gpu in ours.gpus}

    assert told(machine, "-W", "ignore", "-c", NVITOP) == [
        {"used": gpu.used, "total": gpu.total, "free": gpu.free, "held": held[gpu.label]} for gpu in ours.gpus
    ]
    stats = told(machine, *GPUSTAT)["gpus"]
    assert [(gpu["memory.used"], gpu["memory.total"]) for gpu in stats] == [
        (mib(gpu.used), mib(gpu.total)) for gpu in ours.gpus
    ]
    assert [{str(row["pid"]): row["gpu_memory_usage"] for row in gpu["processes"]} for gpu in stats] == [
        {pid: mib(size) for pid, size in held[gpu.label].items()} for gpu in ours.gpus
    ]
