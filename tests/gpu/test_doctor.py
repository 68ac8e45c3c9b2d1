"""`tfgpu doctor` on a real NVIDIA GPU; the line about what it parks there is written down with the other answers."""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec

import pytest
from tfgpu_magic.parking.observation import Observation

import tfgpu_magic
from tests.command.shell import TFGPU
from tests.doctor.looking import read
from tests.gpu.observed import write
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


def test_a_process_of_tensorflow_is_parked_and_comes_back_or_the_line_to_send_says_why_not() -> None:
    words = ["--json", "--park"] if "TFGPU_TEST_OPEN_MODULE" not in os.environ else ["--json", "--allow-open-module"]
    done = subprocess.run([*TFGPU, "doctor", *words], capture_output=True, text=True, timeout=4 * PATIENCE)
    write(done.stdout)
    seen = Observation.from_line(done.stdout)
    if seen.answer == "refused":
        pytest.skip(f"it was refused: {', '.join(seen.why)}")

    assert (seen.answer, seen.why) == ("yes", ())
