"""`tfgpu run` beside Python: any other command, and what is refused; `tests/transcript.txt` has the sentences."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.command.shell import TFGPU, Done, run, running, tfgpu
from tests.machines import machine_of
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x8GiB")


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
    never = (
        *("visible 0; limit 9GiB", "pick --need 8GiB", "pick 3", "visible 0; limit 40% --grow; growth --release"),
        "visible 0; limit 7.7GiB",  # the driver keeps some of the 8 GiB for itself
    )
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
    assert "Not applied. There was no room within 0.0 s. GPU 0: 40% is 3.2 GiB" in refused(over, DOES_NOT_FIT_NOW)
    assert re.match(r"tfgpu: Waiting for room since [\d:]{8}, until [\d:]{8} at the latest\.", said)
    assert (out, process.returncode) == ("begun\n", 0)


def test_it_does_not_wait_for_what_will_never_fit(machine: Machine) -> None:
    said = refused(tfgpu(machine, "run", "--wait", "5s", "visible 0; limit 1000GiB", "--", "-c", ""))

    assert said.startswith("tfgpu: Not applied.")


def test_words_need_no_quotes_where_the_shell_leaves_them(machine: Machine) -> None:
    done = tfgpu(machine, "run", "limit", "0=1GiB", "1=2GiB", "--", "-c", ASKED)

    assert done.stdout == "limit 0=1GiB; limit 1=2GiB\n"


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
