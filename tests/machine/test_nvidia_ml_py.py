"""Other versions of nvidia-ml-py, as the package index has them, read a machine as the installed one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tfgpu_magic.ground.child_process import PACKAGES, QUICK, nvml_path
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.nightly

CODE = (
    "import sys; sys.path += sys.argv[1:]; from tfgpu_magic.machine.driver.nvml import NvmlReader; "
    "print(NvmlReader().read().to_json())"
)


def read(*path: str | Path) -> Snapshot:
    """Return what a process reads whose search path ends with these folders, as if it were always the same time."""
    done = subprocess.run([sys.executable, *QUICK, "-c", CODE, *path], check=True, capture_output=True, text=True)
    return Snapshot.from_json(done.stdout)._replace(time=0.0, listed_at=0.0)


def read_with(package: str, folder: Path) -> Snapshot:
    """Return what a process reads that finds this package before any other one's `pynvml`."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", folder, package], check=True, capture_output=True, timeout=240)
    return read(folder, PACKAGES)


@pytest.mark.parametrize("package", ["nvidia-ml-py==12.535.77", "nvidia-ml-py"])
@pytest.mark.parametrize("gpus", ["8GiB,40GiB:mig=2"])
def test_the_oldest_and_the_newest_read_alike(machine: Machine, package: str, tmp_path: Path) -> None:
    machine.add_neighbour("3GiB@0")
    machine.add_neighbour("1GiB@1.1")
    machine.set_sensors(0, celsius=54, watts=61.5)

    assert read_with(package, tmp_path) == read(*nvml_path())


@pytest.mark.usefixtures("machine")
def test_of_another_package_that_hides_it_the_line_to_install_is_said(tmp_path: Path) -> None:
    error = read_with("pynvml==11.5.3", tmp_path).error or ""

    assert str(tmp_path / "pynvml") in error
    assert "pip install --force-reinstall 'nvidia-ml-py>=12.535'" in error
