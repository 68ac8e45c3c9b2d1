"""What Colab has: IPython 7.34, whose completer, tracebacks and display hook are others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, IPython
from tests.insight.why_on_machine import RAISES
from tests.magic.shell import cells
from IPython.core.interactiveshell import InteractiveShell

seen = cells(
    "%tf_gpu limit 1GiB", "import tensorflow as tf; x = tf.ones(3)", "%tf_gpu", "%tf_gpu growth", "y = 3",
    "%%tf_gpu isolate -o z --limit 1GiB\\nimport tensorflow as tf\\nz = y + int(tf.ones(3).shape[0])\\nz", "z",
    "def broken(x):\\n    return 1 / x", "%%tf_gpu isolate\\nbroken(0)", "%%tf_gpu isolate\\n5;",
    "%%tf_gpu measure\\n6 * 7", "%tf_gpu measure\\nlen('12345')", "%%tf_gpu measure\\n1 / 0", RAISES,
)
offered = InteractiveShell.instance().complete(None, "%tf_gpu gr")[1]
last = cells("%unload_ext tfgpu_magic")[-1]
print("\\nSEEN", json.dumps([IPython.__version__, [[one.text, one.error] for one in [*seen, last]], offered]))
"""


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that stands before all others, with that IPython and what it needs besides the newer one's."""
    folder = tmp_path_factory.mktemp("ipython-7")
    needs = ("ipython==7.34.0", "backcall", "decorator", "pickleshare")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", folder, *needs], check=True, capture_output=True, timeout=240)
    return folder


def test_policies_status_completion_isolated_and_measured_cells_and_explanations_work_there(seven: Path) -> None:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
    with Machine.create("1x8GiB") as machine:
        environment = machine.environ({**os.environ, **quiet, "PYTHONPATH": f"{seven}{os.pathsep}{ROOT}"})
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, cwd=seven, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
    version, seen, offered = json.loads(done.stdout.rpartition("SEEN ")[2])
    texts, errors = [text for text, _ in seen], [error for _, error in seen]

    assert version == "7.34.0"
    assert "takes effect when TensorFlow is imported" in texts[0]
    assert "limit 1 GiB" in texts[2]
    assert errors[3] == "UsageError"
    assert "since In [3]" in texts[3]
    assert "6" in texts[5]
    assert texts[6].strip().endswith("6")
    assert errors[8] == "ZeroDivisionError"
    assert "return 1 / x" in texts[8]  # the lines of an earlier cell's function
    assert "5" not in texts[9].partition("Isolated")[0]
    assert ["Measured:" in text for text in texts[10:13]] == [True] * 3
    assert [re.findall(r"^Out\[\d+\]: (.*)$", text, re.MULTILINE) for text in texts[10:12]] == [["42"], ["5"]]
    assert "Out of GPU memory" in texts[13]
    assert "growth" in offered
    raised = ["UsageError", "ZeroDivisionError", "ZeroDivisionError", "ResourceExhaustedError"]
    assert [error for error in errors if error] == raised
