"""`tfgpu doctor` on a real NVIDIA GPU; what it parks there is entered in VERIFIED.md, where its report belongs, too."""

from __future__ import annotations

import os
import subprocess

import pytest

import tfgpu_magic
from tests.command.shell import TFGPU
from tests.doctor.looking import read
from tests.gpu import verified
from tests.processes import PATIENCE

pytestmark = pytest.mark.gpu


def test_it_says_of_a_real_gpu_what_nvml_and_tensorflow_say() -> None:
    done = subprocess.run([*TFGPU, "doctor", "--json"], capture_output=True, text=True, timeout=2 * PATIENCE)
    report, snapshot = read(done.stdout), tfgpu_magic.look()

    assert report.facts("driver.answers")["version"] == snapshot.driver
    assert {"kernel_module.open", "kernel_module.proprietary"} & set(report.names)
    assert report.facts("cuda.works")["context_bytes"] > 0
    assert report.facts("tensorflow.finds")["gpus"] == report.facts("cuda.works")["shown"]
    assert (done.returncode, report.of("fault")) == (0, [])


def test_a_process_of_tensorflow_is_parked_and_comes_back_and_that_is_written_down() -> None:
    allow = "TFGPU_TEST_OPEN_MODULE" in os.environ
    words = ["--json", "--allow-open-module" if allow else "--park"]
    done = subprocess.run([*TFGPU, "doctor", *words], capture_output=True, text=True, timeout=4 * PATIENCE)
    report = read(done.stdout)
    if "parking.open-module" in report.names:
        pytest.skip("the open kernel module is loaded: on a machine that may stop, set TFGPU_TEST_OPEN_MODULE=1")

    assert "parking.works" in report.names, [row["found"] for row in report.rows if row["name"].startswith("parking.")]
    verified.enter(report)
