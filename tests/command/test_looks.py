"""`tfgpu status`, `plan`, `env` and `help`: what is seen, in words and as JSON, and what is not imported for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.command.shell import TFGPU, run, running, tfgpu
from tests.frameworks.cells_on_machine import STAND_IN
from tests.machines import machine_of
from tests.processes import QUIET
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.notebook.words import table
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.demo.machine import KERNEL, as_notebook
from tfgpu_magic.tell import page_json

machine = machine_of("2x8GiB")
broken = machine_of("2x8GiB", scope="function")

BESIDE = {**QUIET, "PYTHONPATH": os.pathsep.join([str(STAND_IN), os.environ.get("PYTHONPATH", "")])}
"""An environment in which PyTorch and JAX are installed, as stand-ins."""
THEIRS = ("TF_FORCE_GPU_ALLOW_GROWTH", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE", "PYTORCH_ALLOC_CONF")


@pytest.mark.smoke
def test_status_names_notebooks_and_says_nothing_of_itself(machine: Machine) -> None:
    with as_notebook("train.ipynb"):
        neighbour = machine.add_neighbour("3GiB@1", name=KERNEL)
    done = tfgpu(machine, "status")
    neighbour.stop()

    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines()[:5] == [
        " GPU  Name                       Held     Free",
        "   0  Simulated GPU 8GiB  0.0 / 8 GiB  7.9 GiB",
        "   1  Simulated GPU 8GiB  3.0 / 8 GiB  4.9 GiB",
        f" GPU{'PID':>{len(str(neighbour.pid)) + 2}}  Type  Owner           Held",
        f"   1  {neighbour.pid}     C  train.ipynb  3.0 GiB",
    ]


def test_status_as_json_is_the_servers_message(machine: Machine) -> None:
    neighbour = machine.add_neighbour("3GiB@1")
    said = tfgpu(machine, "status", "--json").stdout
    neighbour.stop()

    sent = json.loads(said)
    state = sent.pop("state")
    assert sent == {"version": page_json.VERSION, "type": "full", "sequence": 0, "history": {"times": [], "used": {}}}
    assert state.keys() <= page_json.WireState.__annotations__.keys()
    assert (state["gpus"]["1"]["used"], state["rows"][f"1 {neighbour.pid}"]["held"]) == (3 * GIB, 3 * GIB)
    assert said.count("\n") == 1


def test_without_a_driver_status_says_so_as_json_too(broken: Machine) -> None:
    broken.remove_driver()
    done = tfgpu(broken, "status", "--json")

    assert done.returncode == 1
    assert json.loads(done.stdout)["state"]["error"]


def test_a_reader_that_has_seen_enough_is_no_error(machine: Machine) -> None:
    command = " ".join(TFGPU)
    done = run(machine, "sh", "-c", f"{{ {command} status; echo $? >&2; }} | true")

    assert done.stderr in ("0\n", "141\n")


def exported(text: str) -> dict[str, str]:
    """Return the variables of the frameworks that shell lines leave behind, as a shell sees them."""
    show = "\n".join(f'echo "{name}=${name}"' for name in THEIRS)
    done = subprocess.run(["sh"], input=f"{text}\n{show}", capture_output=True, text=True, check=True, env=os.environ)
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if not line.endswith("="))


def test_plan_says_what_every_framework_takes_as_the_magic_does(machine: Machine) -> None:
    said = tfgpu(machine, "plan", "visible 1; limit 4GiB", env=BESIDE).stdout.splitlines()

    assert said[0] == "`visible 1; limit 4GiB` would do this:"
    assert "PyTorch takes up to 4 GiB of GPU 1, as it needs it." in said
    assert "JAX takes 4 GiB of GPU 1." in said


@pytest.mark.parametrize("policy", ["limit 4GiB", "limit 4GiB --grow", "growth"])
def test_env_exports_what_a_program_has_that_runs_under_the_policy(machine: Machine, policy: str) -> None:
    show = f"import os; [print(name + '=' + os.environ[name]) for name in {THEIRS} if name in os.environ]"
    ran = tfgpu(machine, "run", policy, "--", "-c", show, env=BESIDE)
    theirs = exported(tfgpu(machine, "env", policy, env=BESIDE).stdout)

    assert theirs == dict(line.split("=", 1) for line in ran.stdout.splitlines())
    assert theirs.keys() & {"XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"}


def test_any_other_command_has_the_variables_of_every_framework(machine: Machine) -> None:
    show = 'echo "$XLA_PYTHON_CLIENT_PREALLOCATE $TF_FORCE_GPU_ALLOW_GROWTH"'
    done = tfgpu(machine, "run", "growth", "--", "sh", "-c", show, env={**BESIDE, "KERAS_BACKEND": "jax"})

    assert (done.stdout, done.stderr) == ("false true\n", "")


def test_a_split_is_planned_for_tensorflow_alone_as_it_is_run(machine: Machine) -> None:
    plan, env = (tfgpu(machine, command, "split 2", env=BESIDE) for command in ("plan", "env"))

    run = tfgpu(machine, "run", "split 2", "--", "-c", "pass", env=BESIDE)

    assert "`split 2` is for TensorFlow alone: PyTorch and JAX take what they want." in run.stderr
    assert "split 2 × " in plan.stdout
    assert "JAX" not in plan.stdout
    assert "XLA" not in env.stdout


def test_what_an_option_has_of_a_shells_own_signs_is_quoted(machine: Machine, tmp_path: Path) -> None:
    options = "roundup_power2_divisions:[256:1,>:4]"
    lines = tfgpu(machine, "env", "limit 4GiB", env={**BESIDE, "PYTORCH_ALLOC_CONF": options}).stdout
    done = subprocess.run(
        ["sh", "-c", f'{lines}\necho "$PYTORCH_ALLOC_CONF"'], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )

    assert done.stdout.startswith(f"{options},per_process_memory_fraction:0.5")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_speaks_of_lines_as_a_shell_has_them(machine: Machine, tmp_path: Path) -> None:
    with running(machine, "limit 60% --grow", "--", "-c", "print('ready', flush=True); input()", cwd=tmp_path):
        said = tfgpu(machine, "plan", "limit 60%").stdout

    assert "The last to take its part finds too little: take a lower limit." in said
    assert "%tf_gpu" not in said


@pytest.mark.parametrize("words", [[], ["help"], ["--help"]])
def test_the_help_lists_every_command(machine: Machine, words: list[str]) -> None:
    done = tfgpu(machine, *words)

    assert done.returncode == 0
    said = " ".join(done.stdout.split())
    assert [word.name for word, form in table.in_shells() if form.meaning not in said] == []


@pytest.mark.parametrize("words", [["--once", "--clear"], ["--always"]])
def test_of_limits_one_thing_is_done_at_a_time(machine: Machine, words: list[str]) -> None:
    done = tfgpu(machine, "limits", *words)

    assert (done.returncode, done.stdout) == (2, "")


def test_an_interrupt_ends_it_without_a_traceback_and_as_a_shell_expects(broken: Machine) -> None:
    broken.hang("nvmlInit", 60)
    with broken.popen([*TFGPU, "plan", "limit 1GiB"], stderr=subprocess.PIPE, text=True) as process:
        until(lambda: psutil.Process(process.pid).children())  # the child that asks the driver
        process.send_signal(2)
        _, said = process.communicate(timeout=240)

    assert (process.returncode, said) == (-2, "")


def test_an_interrupt_of_its_start_is_answered_in_the_same_way(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("raise KeyboardInterrupt")  # as one that comes while it is imported
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = tfgpu(machine, "status", env={"PYTHONPATH": paths})

    assert (done.returncode, done.stdout, done.stderr) == (-2, "", "")


def test_an_output_that_takes_no_more_is_told(machine: Machine) -> None:
    done = run(machine, "sh", "-c", f"exec {' '.join(TFGPU)} status > /dev/full")

    assert (done.returncode, done.stderr) == (1, "tfgpu: [Errno 28] No space left on device\n")


def test_a_name_that_the_output_cannot_write_is_written_as_far_as_it_can(machine: Machine) -> None:
    with as_notebook("Übung.ipynb"):
        neighbour = machine.add_neighbour("3GiB@1", name=KERNEL)
    done = tfgpu(machine, "status", env={"PYTHONIOENCODING": "ascii"})
    neighbour.stop()

    assert done.returncode == 0
    assert "?bung.ipynb" in done.stdout


def test_help_imports_nothing_that_only_commands_need() -> None:
    code = "import sys; from tfgpu_magic.command.main import main\nmain(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in done.stdout.split()}

    assert not imported & {"IPython", "traitlets", "psutil", "wrapt", "rich", "ctypes", "subprocess", "pynvml"}
    assert "tfgpu_magic.command.run" not in done.stdout.split()
