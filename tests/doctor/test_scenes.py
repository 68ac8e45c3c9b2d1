"""The doctor tells the truth about a machine: healthy, without a driver, hung, full, a container.

A lost GPU, MIG mode and `CUDA_VISIBLE_DEVICES` are scenes of `tests/transcript/scenes.py`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from tests.doctor.looking import doctor, look, names, read
from tests.machines import machine_of
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.doctor import child
from tfgpu_magic.doctor.machine import ThisMachine as Here
from tfgpu_magic.ground import child_process
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.build import libraries

apart = machine_of("2x8GiB", scope="function")
"""A machine that the tests' own process is not on."""

OF_THE_DRIVER = ("driver", "kernel_module", "gpus", "cuda", "pids", "tensorflow")


@pytest.mark.smoke
def test_a_healthy_machine_has_no_fault_and_every_figure_is_true(apart: Machine) -> None:
    done = doctor(apart, "--json")
    report = read(done.stdout)

    assert (done.stderr, done.returncode, report.of("fault")) == ("", 0, [])
    assert names(report, OF_THE_DRIVER) == [
        "driver.answers", "driver.simulated", "gpus.works", "gpus.works", "cuda.works", "pids.told", "tensorflow.finds",
    ]  # fmt: skip
    assert [row["facts"]["total_bytes"] for row in report.rows if row["name"] == "gpus.works"] == [8 * GIB, 8 * GIB]
    assert report.facts("cuda.works")["shown"] == report.facts("tensorflow.finds")["gpus"] == ["GPU 0", "GPU 1"]
    assert report.facts("cuda.works")["context_bytes"] == CONTEXT
    assert report.facts("tensorflow.finds")["version"] == metadata.version("tensorflow")
    assert apart.held() == 0


def test_in_a_hurry_neither_cuda_nor_tensorflow_is_started(apart: Machine) -> None:
    report = read(doctor(apart, "--json", "--quick").stdout)

    assert names(report, OF_THE_DRIVER) == [
        "driver.answers", "driver.simulated", "gpus.works", "gpus.works",
    ]  # fmt: skip


def test_without_a_driver_that_is_the_fault_and_tensorflow_is_blamed_for_nothing(apart: Machine) -> None:
    apart.remove_driver()
    done = doctor(apart, "--json")
    report = read(done.stdout)

    assert (done.stderr, done.returncode, report.of("fault")) == ("", 1, ["driver.absent"])
    assert names(report, OF_THE_DRIVER) == ["driver.absent"]
    assert "modprobe nvidia" in report.facts("driver.absent")["error"]


def test_a_hung_driver_is_told_in_a_bounded_time_and_nothing_else_is_sent_into_it(apart: Machine) -> None:
    apart.hang("nvmlInit", 3600)
    done = doctor(apart)

    assert (done.stderr, done.returncode) == ("", 1)
    told = " ".join(done.stdout.split())
    assert "did not answer within 15 s: the driver hangs, or takes longer to start." in told
    assert "Neither CUDA nor TensorFlow was started: they may hang with it." in told
    assert sum(number for name, number in apart.calls().items() if name.startswith("nvmlInit")) == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda machine: (machine.add_neighbour("1GiB@0"), machine.host_pids()),  # as in a container
            ["cuda.works", "pids.untold"],
        ),
        (
            lambda machine: machine.fault("nvmlDeviceGetComputeRunningProcesses", 3),
            ["cuda.works", "pids.untold"],
        ),
        (lambda machine: machine.hide_memory(), ["cuda.works", "pids.no-sizes"]),
        (lambda machine: machine.fault("cuInit", 999), ["cuda.fails"]),
        (lambda machine: machine.fault("cuDevicePrimaryCtxRetain", 46), ["cuda.refused"]),
        (lambda machine: [machine.add_neighbour(f"7GiB@{gpu}") for gpu in (0, 1)], ["cuda.not-tried"]),
    ],
)
def test_what_cuda_and_the_driver_say_is_told_and_no_room_is_taken(
    machine: Machine, change: Callable[[Machine], object], expected: list[str]
) -> None:
    change(machine)
    before = machine.held()
    report = look("cuda", "pids")

    assert report.names == expected
    assert all(str(row["facts"].get("error", "CUDA")).startswith("CUDA") for row in report.rows)  # its own name for it
    assert machine.held() == before


def test_a_container_without_cudas_library_is_told_its_variable(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(libraries(), tmp_path / "libraries", ignore=shutil.ignore_patterns("libcuda.so*"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "libraries"))

    assert look("driver", "cuda").names == ["driver.answers", "driver.simulated", "cuda.no-library"]


def test_a_cuda_that_hangs_is_given_up(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.hang("cuInit", 3600)
    here = Here()
    assert here.has_gpus
    monkeypatch.setattr(child_process, "PATIENCE", 1.0)
    report = look("cuda", "pids", here=here)

    assert [row["found"] for row in report.rows] == ["CUDA does not start: it took more than 1 s."]
    until(lambda: not (child_process._killed or child_process._asking))


def test_a_gpu_that_tensorflow_passes_over_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with Machine.create("8GiB,8GiB:sm=4") as machine:
        for name, value in machine.environ().items():
            monkeypatch.setenv(name, value)
        report = look("tensorflow")

    assert report.names == ["tensorflow.fewer"]
    assert (report.facts("tensorflow.fewer")["gpus"], report.facts("tensorflow.fewer")["passed_over"]) == (
        ["GPU 0"],
        ["GPU 1"],
    )


def test_a_library_of_cuda_that_is_missing_is_named(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(libraries(), tmp_path / "libraries")
    for library in (tmp_path / "libraries").glob("libcusolver.so*"):
        library.unlink()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "libraries"))
    report = look("tensorflow")

    assert report.names == ["tensorflow.blind"]
    assert "libcusolver" in report.facts("tensorflow.blind")["missing"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise ImportError('numpy is too new')", "ImportError: numpy is too new"),
        ("import os; os.kill(os.getpid(), 4)", "SIGILL, illegal instruction"),
        ("import time; time.sleep(3600)", "it took more than 1 s"),
    ],
)
def test_a_tensorflow_that_cannot_be_asked_is_given_up(
    code: str, why: str, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tensorflow.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    here = Here()
    assert here.has_gpus
    if "sleep" in code:
        monkeypatch.setattr(child, "IMPORTING", 1.0)
    report = look("tensorflow", here=here)

    assert report.names == ["tensorflow.ended"]
    assert report.facts("tensorflow.ended") == {"version": metadata.version("tensorflow"), "why": why}
    until(lambda: not (child_process._killed or child_process._asking))


def test_the_asking_process_imports_no_framework(apart: Machine) -> None:
    code = (
        "import sys; from tests.doctor.looking import look; look('tensorflow', 'system', 'policy'); "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'tensorflow', 'torch', 'jax', 'pynvml'}))"
    )
    done = apart.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout == "[]\n", done.stderr
