"""Policies by group, and what an administrator may leave unsaid: in a real IPython, with real TensorFlow."""

from __future__ import annotations

import grp
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter import Notebook, Server, configure, open_notebook, until
from tests.machines import machine_of
from tests.magic.shell import Seen, loading
from tests.processes import run
from tfgpu_magic.config.runtime import quieten
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x8GiB")

OURS = "tfgpu_magic: `limit 1GiB` is in force."
MINE_TOO = b"W0000 00:00:1.2  31 mine.cc:1] a warning of the user's own library\n"
END = b"<that was all>\n"
MINE = grp.getgrgid(os.getgid()).gr_name

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
    _, _, imported = run(machine, _cells, {"quiet": quiet}, "%tf_gpu limit 1GiB", "import tensorflow", fresh=True)

    assert imported.text == said


def test_a_warning_is_said_all_the_same(machine: Machine) -> None:
    configured = {"quiet": True, "policy": "limit 100GiB"}
    _, imported = run(machine, _cells, configured, "import tensorflow", fresh=True)
    _, _, changed = run(machine, _cells_beside_a_neighbour, {"quiet": True}, fresh=True)

    assert "`limit 100GiB`, from the configuration, cannot be had in full" in imported.text
    assert f"{OURS}\nWarning: it does not fit any more." in changed.text


@pytest.mark.parametrize(
    ("policies", "policy"),
    [
        ({MINE: "limit 25%"}, "limit 25%"),
        ({"nobody-has-this-group": "limit 10%", MINE: "limit 25%"}, "limit 25%"),
        ({MINE: "limit 25%", "nobody-has-this-group": "limit 10%"}, "limit 25%"),
        ({"nobody-has-this-group": "limit 10%"}, "growth"),
        ({}, "growth"),
    ],
)
def test_the_policy_is_that_of_the_first_group_that_the_user_is_in(
    machine: Machine, policies: dict[str, str], policy: str
) -> None:
    loaded, plan = run(machine, _cells, {"policies": policies, "policy": "growth"}, "%tf_gpu plan")

    assert loaded.text == ""
    assert plan.value.startswith(f"`{policy}` is in force")


def test_the_variable_outweighs_the_groups_policies(machine: Machine) -> None:
    env = {"TFGPU_POLICY": "limit 1GiB"}
    _, plan = run(machine, _cells, {"policies": {MINE: "limit 25%"}}, "%tf_gpu plan", env=env)

    assert plan.value.startswith("`limit 1GiB` is in force")


def test_a_policy_of_a_group_that_is_misspelt_is_told_with_its_group(machine: Machine) -> None:
    loaded, _ = run(machine, _cells, {"policies": {MINE: "limti 25%"}}, "%tf_gpu plan")

    assert f"`limti 25%`, from the configuration for the group {MINE}, is NOT in force" in loaded.text


@pytest.mark.parametrize("fails", [False, True])
def test_what_an_import_writes_that_is_no_noise_is_shown_and_the_rest_on_demand(tmp_path: Path, fails: bool) -> None:
    noise = "I0000 00:00:1.2  31 port.cc:153] oneDNN\nW0000 00:00:1.2  31 x.cc:1] so\nWARNING: All log messages before "
    noise += "absl::InitializeLog() is called are written to STDERR\n"
    error = "E0000 00:00:1.2  31 cuda.cc:1] no GPU\nplain\n"
    (tmp_path / "tensorflow.py").write_text(
        f"import os\nos.write(2, {noise + error!r}.encode())\n{'raise ImportError' if fails else ''}\n"
    )
    program = (
        "import os, sys\nfrom tfgpu_magic.config import import_log\nimport_log.keep_out(); import_log.keep_out()\n"
        "try:\n    import tensorflow\nexcept ImportError:\n    pass\nos.write(2, b'after\\n')\n"
        "import_log.let_in(); import_log.let_in()\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    assert done.stderr == f"{error}after\n{noise}"


@pytest.mark.parametrize("quiet", [True, False])
def test_tensorflows_own_log_is_kept_out(machine: Machine, quiet: bool) -> None:
    done = _log(machine.environ(), quiet=quiet)

    assert ("cpu_feature_guard" in done) != quiet
    assert ("Created device" in done) != quiet


@pytest.mark.parametrize("quiet", [True, False])
def test_in_a_notebook_all_but_tensorflows_log_is_seen_and_that_on_demand(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    configure(tmp_path, quiet_tensorflow=quiet)
    with monkeypatch.context() as outside:
        # In a test a kernel would leave descriptor 2 alone, where TensorFlow writes; and the others silence it.
        for name in ("PYTEST_CURRENT_TEST", "TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS"):
            outside.delenv(name, raising=False)
        server = Server(machine, tmp_path)
    try:
        until(lambda: server.call("status"))
        notebook = open_notebook(server, "quiet.ipynb")
        _seen(notebook, "%tf_gpu limit 1GiB")
        imported = _seen(notebook, "import tensorflow as tf")
        used = _seen(notebook, "x = tf.zeros(3)")
        # In one piece: what is written to the descriptor comes through a thread, and may come between two.
        mine = _seen(notebook, f"import os, sys; os.write(2, {MINE_TOO!r}); sys.stderr.write('told\\n'); x.y")
        asked = _seen(notebook, "%config TfGpuMagics.quiet_tensorflow = False")
        notebook.client.stop_channels()
    finally:
        server.stop()

    assert ("oneDNN" in imported["stderr"]) != quiet
    assert ("oneDNN" in asked["stderr"]) == quiet
    assert ("cpu_feature_guard" in imported["stderr"] + used["stderr"]) != quiet
    assert ("Created device" in used["stderr"]) != quiet
    assert OURS in imported["stdout"]
    assert MINE_TOO.decode() in mine["stderr"]
    assert "told\n" in mine["stderr"]
    assert "AttributeError" in mine["error"]
    if quiet:
        assert imported == {"stdout": f"{OURS}\n", "stderr": "", "error": ""}
        assert used == {"stdout": "", "stderr": "", "error": ""}


def test_its_errors_are_shown(machine: Machine) -> None:
    """Without a driver, CUDA's is one."""
    assert "cuInit" in _log(dict(os.environ), quiet=True)


def test_a_level_that_the_user_has_set_stays(machine: Machine) -> None:
    assert "cpu_feature_guard" in _log(machine.environ() | {"TF_CPP_MIN_LOG_LEVEL": "0"}, quiet=True)


def test_what_few_configurations_have_is_not_imported_for_others() -> None:
    code = "import tfgpu_magic.loading, sys; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not set(modules) & {f"tfgpu_magic.{name}" for name in ("config.ceiling", "configuration", "config.runtime")}


def _cells(configured: Mapping[str, Any], *sources: str) -> list[Seen]:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    InteractiveShell.instance(config=Config({"TfGpuMagics": dict(configured)}))
    return loading(*sources)


def _cells_beside_a_neighbour(configured: Mapping[str, Any]) -> list[Seen]:
    from tests.magic.shell import cells

    said = _cells(configured, "%tf_gpu limit 1GiB")
    machine = Machine.current()
    assert machine is not None
    machine.add_neighbour("7.5GiB@0")
    return [*said, *cells("import tensorflow")]


def _seen(notebook: Notebook, source: str) -> dict[str, str]:
    """Run a cell, and return all that a page shows of it by stream, also what is written to descriptor 2.

    The kernel reads that descriptor in a thread, and sends it on when it can: a mark in it tells that all has come.
    """
    client, seen, ended = notebook.client, {"stdout": "", "stderr": "", "error": ""}, False
    client.execute(source, stop_on_error=False)
    last = client.execute(f"_ = __import__('os').write(2, {END!r})")
    while not (ended and END.decode() in seen["stderr"]):
        message = client.get_iopub_msg(timeout=240)
        content, kind = message["content"], message["msg_type"]
        if kind == "stream":
            seen[content["name"]] += content["text"]
        elif kind == "error":
            seen["error"] += f"{content['ename']}: {content['evalue']}"
        ended = ended or (message["parent_header"].get("msg_id"), content.get("execution_state")) == (last, "idle")
    return seen | {"stderr": seen["stderr"].replace(END.decode(), "")}


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
    ours = {"TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "ERROR"}
    for name in ours:
        monkeypatch.delenv(name, raising=False)
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    for on in (True, True, False, False):
        quieten(on=on)

        assert {name: os.environ[name] for name in ours if name in os.environ} == (ours | theirs if on else theirs)
