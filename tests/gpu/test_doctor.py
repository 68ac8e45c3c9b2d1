"""`tfgpu doctor` on a real NVIDIA GPU."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec

import pytest

import tfgpu_magic
from tests.command.shell import TFGPU
from tests.doctor.looking import read
from tests.processes import PATIENCE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
]


def test_it_says_of_a_real_gpu_what_nvml_and_tensorflow_say() -> None:
    done = subprocess.run([*TFGPU, "doctor", "--json"], capture_output=True, text=True, timeout=2 * PATIENCE)
    report, snapshot = read(done.stdout), tfgpu_magic.look()

    assert report.facts("driver.answers")["version"] == snapshot.driver
    assert "kernel_module.loaded" in report.names
    assert report.facts("cuda.works")["context_bytes"] > 0
    assert report.facts("tensorflow.finds")["gpus"] == report.facts("cuda.works")["shown"]
    assert (done.returncode, report.of("fault")) == (0, [])
