"""What an administrator may leave unsaid: in a real IPython, with real TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.machines import machine_of
from tests.magic.shell import Seen, cells, configured
from tests.processes import run
from tfgpu_magic.frameworks.runtime import set_log_level
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x8GiB")

OURS = "tfgpu_magic: `limit 1GiB` is in force from TensorFlow's first op on."

NOISY = """
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config({"TfGpuMagics": {"quiet_tensorflow": QUIET}}))
for cell in ("%load_ext tfgpu_magic", "%tf_gpu growth", "import tensorflow as tf", "tf.zeros(3)"):
    shell.run_cell(cell).raise_error()
print("LEVEL", __import__("os").environ.get("TF_CPP_MIN_LOG_LEVEL"))
"""


@pytest.mark.parametrize(("quiet", "said"), [(True, ""), (False, f"{OURS}\n")])
def test_what_is_in_force_in_full_need_not_be_said(machine: Machine, quiet: bool, said: str) -> None:
    _, _, imported = run(
        machine, configured, {"quiet": quiet}, "%tf_gpu limit 1GiB", "import tensorflow", imported=False
    )

    assert imported.text == said


def test_a_warning_is_said_all_the_same(machine: Machine) -> None:
    settings = {"quiet": True, "policy": "limit 100GiB"}
    _, imported = run(machine, configured, settings, "import tensorflow", imported=False)
    _, _, changed = run(machine, _cells_beside_a_neighbour, {"quiet": True}, imported=False)

    assert "`limit 100GiB`, from the configuration, cannot be had in full" in imported.text
    assert f"{OURS}\nWarning: it does not fit any more." in changed.text


@pytest.mark.parametrize("quiet", [True, False])
def test_tensorflows_own_log_is_kept_out(machine: Machine, quiet: bool) -> None:
    done = _log(machine.environ(), quiet=quiet)

    assert ("cpu_feature_guard" in done) != quiet
    assert ("Created device" in done) != quiet


def test_its_errors_are_shown(machine: Machine) -> None:
    """Without a driver, CUDA's is one."""
    assert "cuInit" in _log(dict(os.environ), quiet=True)


def test_what_few_configurations_have_is_not_imported_for_others() -> None:
    shell = "from IPython.core.interactiveshell import InteractiveShell as Shell; shell = Shell.instance()"
    code = f"{shell}; shell.run_line_magic('load_ext', 'tfgpu_magic'); import sys; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    rooms = {f"tfgpu_magic.{name}" for name in ("policy.ceiling", "notebook.configuration", "frameworks.runtime")}

    assert "tfgpu_magic.notebook.loading" in modules
    assert not set(modules) & {"tomllib", *rooms}


def _cells_beside_a_neighbour(settings: Mapping[str, Any]) -> list[Seen]:
    said = configured(settings, "%tf_gpu limit 1GiB")
    machine = Machine.current()
    assert machine is not None
    machine.add_neighbour("7.5GiB@0")
    return [*said, *cells("import tensorflow")]


def _log(environment: Mapping[str, str], *, quiet: bool) -> str:
    """Return what TensorFlow writes to its log from its import to its first op."""
    loud = {name: value for name, value in environment.items() if name != "TF_ENABLE_ONEDNN_OPTS"}
    program = NOISY.replace("QUIET", str(quiet))
    done = subprocess.run([sys.executable, "-c", program], env=loud, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.parametrize("theirs", [{}, {"TF_CPP_MIN_LOG_LEVEL": "2"}, {"TF_CPP_MIN_LOG_LEVEL": "0"}])
def test_what_the_user_has_set_of_it_is_there_afterwards(
    monkeypatch: pytest.MonkeyPatch, theirs: dict[str, str]
) -> None:
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    for on in (True, True, False, False):
        set_log_level(on=on)

        assert dict(os.environ) == ({"TF_CPP_MIN_LOG_LEVEL": "2"} | before if on else before)
