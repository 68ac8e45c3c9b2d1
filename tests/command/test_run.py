"""`tfgpu run` beside Python: any other command, what is refused, and what is not there."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.command.shell import TFGPU, Done, run, running, tfgpu
from tests.machines import machine_of
from tests.processes import QUIET
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x8GiB")

SAY = "echo $CUDA_VISIBLE_DEVICES, $TF_FORCE_GPU_ALLOW_GROWTH, $TFGPU_POLICY"


def test_a_command_has_what_variables_can_say_and_the_policy_for_its_kernels(machine: Machine) -> None:
    done = tfgpu(machine, "run", "visible 1; growth", "--", "sh", "-c", SAY)

    assert (done.stdout, done.stderr, done.returncode) == ("1, true, visible 1; growth\n", "", 0)


def test_a_command_that_starts_python_is_run_itself(machine: Machine) -> None:
    done = tfgpu(machine, "run", "growth", "--", "echo", "python", "-c", "1")

    assert (done.stdout, done.stderr, done.returncode) == ("python -c 1\n", "", 0)


@pytest.mark.parametrize("program", ["touch begun", "-c \"open('begun', 'w')\""])
def test_without_an_output_it_is_run_all_the_same(machine: Machine, tmp_path: Path, program: str) -> None:
    done = run(machine, "sh", "-c", f"exec {' '.join(TFGPU)} run growth -- {program} >&-", cwd=tmp_path)

    assert (done.stderr, done.returncode, [path.name for path in tmp_path.iterdir()]) == ("", 0, ["begun"])


@pytest.mark.smoke
def test_a_command_is_the_process_itself_with_its_signals_and_status(machine: Machine) -> None:
    with machine.popen(
        [*TFGPU, "run", "growth", "--", "sh", "-c", "echo $$; yes | head -n 1; exit 7"], stdout=-1, stderr=-1, text=True
    ) as process:
        out, err = process.communicate(timeout=240)

    assert (out, err, process.returncode) == (f"{process.pid}\ny\n", "", 7)  # `yes` complains where SIGPIPE is ignored


@pytest.mark.parametrize("policy", ["limit 40%", "limit 2GiB --grow", "split 2", "split 2 --cpu"])
def test_what_variables_cannot_say_is_refused_before_the_command_begins(
    machine: Machine, tmp_path: Path, policy: str
) -> None:
    done = tfgpu(machine, "run", policy, "--", "touch", "begun", cwd=tmp_path)

    assert (done.stdout, done.returncode, list(tmp_path.iterdir())) == ("", 2, [])
    assert done.stderr.startswith("tfgpu: Not applied. No environment variable says all of `")
    assert done.stderr.splitlines()[-1] == f'  tfgpu run "{policy}" -- program.py'


WRONG, DOES_NOT_FIT_NOW = 2, 75


def refused(done: Done, status: int = WRONG) -> str:
    assert (done.stdout, done.returncode) == ("", status)
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.smoke
def test_a_policy_that_does_not_fit_is_refused_with_the_line_that_fits(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "a program.py").write_text("print('begun')")
    neighbour = machine.add_neighbour("6GiB@0")
    done = tfgpu(machine, "run", "limit 40%", "--", "a program.py", "--lr", "1 2", cwd=tmp_path)
    said = refused(done, DOES_NOT_FIT_NOW)
    neighbour.stop()

    assert "tfgpu: Not applied. GPU 0: 40% is 3.2 GiB" in said
    assert "neighbour\n" in said
    assert "Fits now:\n  tfgpu run " in said
    assert """\n  tfgpu run "visible 1; limit 40%" -- 'a program.py' --lr '1 2'\n""" in said
    assert "%tf_gpu" not in said


@pytest.mark.parametrize(
    ("option", "command"),
    [("--script ", "tool -O 'a b'"), ("", f"{sys.executable} -O tool 'a b'"), ("", "./tool 'a b'")],
)
def test_the_line_that_fits_runs_the_same_program(machine: Machine, tmp_path: Path, option: str, command: str) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!{sys.executable}\nprint('begun')")
    tool.chmod(0o755)
    neighbour = machine.add_neighbour("6GiB@0")
    done = tfgpu(machine, "run", *option.split(), "limit 40%", "--", *shlex.split(command), cwd=tmp_path)
    said = refused(done, DOES_NOT_FIT_NOW)
    neighbour.stop()

    assert f'\n  tfgpu run {option}"visible 1; limit 40%" -- {command}\n' in said


def test_what_others_hold_is_told_from_what_no_waiting_mends(machine: Machine) -> None:
    neighbour = machine.add_neighbour("6GiB@0")
    crowded = ("visible 0; limit 40%", "pick 2 --need 4GiB", "visible 0; limit 0=40%")
    never = ("visible 0; limit 9GiB", "pick --need 8GiB", "pick 3", "visible 0; limit 40% --grow; growth --release")
    statuses = {words: tfgpu(machine, "run", words, "--", "-c", "").returncode for words in (*crowded, *never)}
    neighbour.stop()

    assert statuses == {**dict.fromkeys(crowded, DOES_NOT_FIT_NOW), **dict.fromkeys(never, WRONG)}


def test_it_waits_for_room_as_long_as_it_is_told_to(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('begun')")
    neighbour = machine.add_neighbour("6GiB@0")
    words = ("visible 0; limit 40%", "--", "train.py")
    unclear = refused(tfgpu(machine, "run", "--wait", "10", *words, cwd=tmp_path))
    over = tfgpu(machine, "run", "--wait", "1ms", *words, cwd=tmp_path)
    with machine.popen(
        [*TFGPU, "run", "--wait", "10m", words[0], "--", sys.executable, "train.py"],
        cwd=tmp_path, stdout=-1, stderr=-1, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        said = process.stderr.readline()
        neighbour.stop()
        out = process.communicate(timeout=240)[0]

    assert "10 of what? Write 10s or 10m." in unclear
    assert "1ms at the most" in refused(over, DOES_NOT_FIT_NOW).splitlines()[0]
    assert "Not applied. GPU 0: 40% is 3.2 GiB" in over.stderr
    assert said.startswith("tfgpu: Waiting for room, 10m at the most. GPU 0: 40% is 3.2 GiB")
    assert (out, process.returncode) == ("begun\n", 0)


def test_a_ceiling_that_no_variable_holds_is_named_where_it_refuses(machine: Machine, tmp_path: Path) -> None:
    ceiling = {**QUIET, "TFGPU_CEILING": "limit 40%"}
    said = refused(tfgpu(machine, "run", "growth", "--", "touch", "begun", cwd=tmp_path, env=ceiling))

    assert "No environment variable says all of the ceiling `limit 40%`, and touch is not a Python program" in said
    assert said.endswith('\n  tfgpu run "growth" -- program.py\n')
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["limit", "40", "--", "x.py"], "40 of what? Write 40GiB, or 40% (of the GPU)."),
        (["limmit 40%", "--", "x.py"], "'limmit' is not a word of tfgpu. Did you mean 'limit'? `tfgpu help plan`"),
        (["limmit 40%", "--", "touch", "begun"], "'limmit' is not a word of tfgpu. Did you mean 'limit'?"),
        (["limit 2GiB", "x.py", "10"], 'write it behind --:   tfgpu run "limit 2GiB" -- x.py 10\n'),
        (["limit 40%", "--"], "there is no program to run. Write it behind --"),
        (["--", "x.py"], "the following arguments are required: POLICY"),
        (["visible 7", "--", "true"], "there is no GPU 7"),
    ],
)
def test_a_mistake_is_told_in_words_and_answered_with_2(
    machine: Machine, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "x.py").write_text("print('begun')")

    assert said.lower() in refused(tfgpu(machine, "run", *words, cwd=tmp_path)).lower()


@pytest.mark.parametrize(
    ("program", "said", "status"),
    [
        ("no-such-command", "No such file or directory", 127),
        ("/etc/passwd", "Permission denied", 126),
    ],
)
def test_a_command_that_cannot_be_run_is_answered_as_shells_do(
    machine: Machine, program: str, said: str, status: int
) -> None:
    done = tfgpu(machine, "run", "growth", "--", program)

    assert (done.stderr, done.returncode) == (f"tfgpu: {program}: {said}\n", status)


def test_words_need_no_quotes_where_the_shell_leaves_them(machine: Machine) -> None:
    done = tfgpu(machine, "run", "limit", "0=1GiB", "1=2GiB", "--", "-c", ASKED)

    assert done.stdout == "limit 0=1GiB; limit 1=2GiB\n"


def test_a_policy_without_effect_is_told(machine: Machine) -> None:
    done = tfgpu(machine, "run", "visible none; limit 1GiB", "--", "-c", "print('runs')")

    assert done.stdout == "runs\n"
    assert "has no effect here: TensorFlow sees no GPU." in done.stderr


def test_two_programs_that_pick_have_a_gpu_each(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, sys; print('ready', os.environ['CUDA_VISIBLE_DEVICES'], flush=True); sys.stdin.read()"
    )
    words = (machine, "pick; growth", "--", "program.py")
    with running(*words, cwd=tmp_path) as one, running(*words, cwd=tmp_path) as two:
        picked = {one.said, two.said}

    assert picked == {"ready 0\n", "ready 1\n"}


ASKED = "import tfgpu_magic.frameworks.runtime as r; print(r.RUNTIME.plan.asked)"


def test_the_interpreter_is_the_one_that_runs_tfgpu(machine: Machine) -> None:
    done = tfgpu(machine, "run", "growth", "--", "-c", "import sys; print(sys.executable)")

    assert done.stdout == f"{sys.executable}\n"


@pytest.mark.parametrize(("again", "limited"), [("sys.argv", False), ("sys.orig_argv[1:]", True)])
def test_a_program_that_starts_itself_anew_has_its_limit_as_python_was_started(
    machine: Machine, tmp_path: Path, again: str, limited: bool
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nfrom tfgpu_magic.engine import engine\n"
        "print(engine.current().asked, flush=True)\n"
        'if os.environ.setdefault("AGAIN", "yes") in sys.argv: sys.exit()\n'
        f'os.execv(sys.executable, [sys.executable, *{again}, "yes"])\n'
    )
    done = tfgpu(machine, "run", "limit 40%", "--", str(program), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert "limit" in first
    assert ("limit" in second) is limited
