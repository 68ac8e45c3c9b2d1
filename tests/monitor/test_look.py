"""One look at a simulated machine: right and never an exception, whatever the driver says."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.monitor.looks import timed_look
from tests.sizes import GIB
from tfgpu_magic.control import status
from tfgpu_magic.monitor import look as looking
from tfgpu_magic.monitor.look import look

if TYPE_CHECKING:
    from pathlib import Path

    from tfgpu_magic.monitor.snapshot import Snapshot
    from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.usefixtures("own_looks")

FUNCTIONS = [
    "nvmlInitWithFlags",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetName",
    "nvmlDeviceGetAttributes",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
]
CODES = [1, 2, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 25, 28, 999, 12345]


@pytest.mark.smoke
def test_a_look_sees_gpus_and_who_holds_what(machine: Machine) -> None:
    neighbour = machine.add_neighbour("9GiB@1")

    snapshot = timed_look()

    assert (snapshot.error, snapshot.notes, snapshot.simulated) == (None, (), True)
    assert [gpu.uuid for gpu in snapshot.gpus] == [gpu.uuid for gpu in machine.gpus()]
    assert [gpu.multiprocessors for gpu in snapshot.gpus] == [32] * 4
    assert snapshot.gpus[1].used == 9 * GIB
    assert [(row.gpu, row.pid, row.kind, row.held) for row in snapshot.processes] == [
        ("1", neighbour.pid, "C", 9 * GIB)
    ]


@pytest.mark.parametrize("gpus", ["16GiB,40GiB:mig=2"])
def test_mig_instances_have_the_machines_labels_and_their_own_figures(machine: Machine) -> None:
    machine.add_neighbour("3GiB@1.2")

    snapshot = timed_look()

    assert [gpu.label for gpu in snapshot.gpus] == [gpu.label for gpu in machine.gpus()]
    assert [gpu.used for gpu in snapshot.gpus][2:] == [0, 3 * GIB]
    assert [gpu.multiprocessors for gpu in snapshot.gpus][2:] == [16, 16]
    assert [row.gpu for row in snapshot.processes] == ["1.2"]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_error_of_any_function_is_an_exception(machine: Machine, function: str) -> None:
    machine.add_neighbour("9GiB@1")
    for code in CODES:
        machine.fault(function, code)
        shown = status()  # drawn too, as a user would
        machine.fault(function, 0)
        table, said, drawn = shown.table, repr(shown), shown._repr_html_()

        assert [gpu.gpu for gpu in table.gpus] == ([] if table.error else ["0", "1", "2", "3"])
        assert all(one in said for one in ([table.error] if table.error else [gpu.name for gpu in table.gpus]))
        assert ("<table" in drawn) == (table.error is None)


@pytest.mark.smoke
def test_without_a_driver_a_look_says_what_was_tried_and_what_to_do(machine: Machine) -> None:
    machine.remove_driver()

    snapshot = timed_look()

    assert snapshot.absent
    assert "Load it (modprobe nvidia)" in (snapshot.error or "")


def test_threads_may_look_at_once(machine: Machine) -> None:
    seen: list[Snapshot] = []
    threads = [threading.Thread(target=lambda: seen.append(look(10))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [snapshot.error for snapshot in seen] == [None] * 4


@pytest.mark.parametrize("program", ["", "/nowhere/python"])
def test_no_python_to_start_is_said(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "executable", program)

    assert "no process could be started" in (timed_look().error or "")


def test_a_reader_that_crashes_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "CODE", "import os; os.abort()")

    assert "ended without one" in (timed_look().error or "")


def test_pynvml_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])

    assert "pip install nvidia-ml-py" in (timed_look().error or "")


@pytest.mark.parametrize("named", [False, True], ids=["where Python begins", "by its path too"])
def test_a_pynvml_beside_a_notebook_is_not_nvmls(machine: Machine, tmp_path: Path, named: bool) -> None:
    (tmp_path / "pynvml.py").write_text("raise SystemExit('mine')")
    code = "from tfgpu_magic.monitor.look import look; seen = look(10); print(seen.error, len(seen.gpus))"
    env = {**os.environ, **({"PYTHONPATH": str(tmp_path)} if named else {})}
    answer = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)

    assert answer.stdout == "None 4\n"


def test_the_process_that_looks_imports_no_pynvml() -> None:
    code = "import sys; from tfgpu_magic.control import status; status(); print('pynvml' in sys.modules)"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout == "False\n"
