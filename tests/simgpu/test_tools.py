"""gpustat and nvitop, unchanged, show on the simulated machine what it accounts, to the MiB."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.sizes import MIB
from tfgpu_magic.simgpu import Machine

_NVITOP = """
import json
from nvitop import Device
devices = Device.all()
print(json.dumps({
    "gpus": [[device.name(), device.memory_used(), device.memory_total(), device.uuid()] for device in devices],
    "rows": sorted([device.index, pid, process.gpu_memory()] for device in devices
                   for pid, process in device.processes().items()),
}))
"""


def _busy() -> Machine:
    machine = Machine.create("2x16GiB,80GiB")
    machine.add_neighbour("9GiB@0", name="python train.py")
    machine.add_neighbour("700MiB@0")
    machine.add_foreign("3GiB@1")
    return machine


def test_gpustat_agrees() -> None:
    with _busy() as machine:
        command = [sys.executable, "-m", "gpustat", "--json"]
        shown = json.loads(machine.run(command, stdout=subprocess.PIPE, check=True).stdout)["gpus"]

        assert [(gpu.index, gpu.name, gpu.uuid, gpu.used // MIB, gpu.total // MIB) for gpu in machine.gpus()] == [
            (gpu["index"], gpu["name"], gpu["uuid"], gpu["memory.used"], gpu["memory.total"]) for gpu in shown
        ]
        assert {(row.gpu, row.pid, row.held // MIB) for row in machine.processes()} == {
            (gpu["index"], row["pid"], row["gpu_memory_usage"]) for gpu in shown for row in gpu["processes"]
        }


def test_nvitop_agrees() -> None:
    with _busy() as machine:
        done = machine.run([sys.executable, "-c", _NVITOP], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        shown = json.loads(done.stdout)

        assert [[gpu.name, gpu.used, gpu.total, gpu.uuid] for gpu in machine.gpus()] == shown["gpus"]
        assert sorted([row.gpu, row.pid, row.held] for row in machine.processes()) == shown["rows"]
        assert done.stderr == b""


def test_nvitop_draws_its_screen() -> None:
    with _busy() as machine:
        done = machine.run([sys.executable, "-m", "nvitop", "--once"], stdout=subprocess.PIPE, text=True, check=True)

    assert "9216MiB / 16384MiB" not in done.stdout  # 700 MiB more than the first neighbour's
    assert "9916MiB / 16384MiB" in done.stdout
    assert "python train.py" in done.stdout
