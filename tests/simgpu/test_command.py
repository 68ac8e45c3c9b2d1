"""The command line: what runs on the machine, what it answers, and what it says to mistakes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfgpu_magic.simgpu import Machine

SIMGPU = [sys.executable, "-m", "tfgpu_magic.simgpu"]


def simgpu(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SIMGPU, *words], capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.smoke
def test_the_commands_output_and_status_are_passed_on() -> None:
    done = simgpu("--", "sh", "-c", "echo out; echo err >&2; exit 7")

    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 7)
    assert simgpu("--", "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM  # as a shell tells it


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on_and_the_machine_is_cleaned_up(number: signal.Signals, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(5))\n"
        f"Path({str(tmp_path / 'machine')!r}).write_text(os.environ['TFGPU_SIMGPU'])\n"
        "time.sleep(60)\n"
    )
    command = [*SIMGPU, "--neighbour", "1GiB@0", "--", sys.executable, "-c", script]
    # In a session of its own: a terminal would send its Ctrl-C to both.
    with subprocess.Popen(command, start_new_session=True) as launcher:
        written = tmp_path / "machine"
        while not (written.exists() and written.read_text()):
            time.sleep(0.02)
        launcher.send_signal(number)
        assert launcher.wait(240) == 5

    assert not Path(written.read_text()).parent.exists()


def test_inside_it_shows_the_machine_and_changes_it() -> None:
    inside = " ".join(SIMGPU)
    done = simgpu(
        *("--gpus", "2x8GiB,40GiB:mig=2", "--neighbour", "3GiB@0", "--foreign", "1GiB@2.1", "--lose", "1", "--"),
        *("sh", "-c", f"{inside} show && {inside} set --restore 1 --lose 0 && {inside} show"),
    )

    assert done.returncode == 0, done.stderr
    first = [line for line in done.stdout.splitlines() if line.startswith("GPU 0    Simulated")]
    assert "Simulated GPU 8GiB: 3 GiB used, 4.9 GiB free" in done.stdout
    assert "GPU 2.1  Simulated GPU 40GiB MIG 1/2: 1 GiB used" in done.stdout
    assert done.stdout.count("LOST") == 2
    assert [line.endswith("LOST") for line in first] == [False, True]


def test_faults_of_the_command_line_are_those_of_the_machine() -> None:
    code = (
        "import pynvml\n"
        "try:\n    pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())\n"
        "except pynvml.NVMLError as error:\n    print(error.value)"
    )
    for words, expected in (
        (["--fault", "nvmlDeviceGetCount=999"], "999"),
        (["--no-driver"], "9"),
        (["--hang", "nvmlDeviceGetCount=0.1"], "1"),
    ):
        assert simgpu(*words, "--", sys.executable, "-c", code).stdout.strip() == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "there is no command to run"),
        (["--gpus", "2x8", "--", "true"], "8 of what? Write 8MiB or 8GiB."),
        (["--gpus", "65x8GiB", "--", "true"], "1 to 64"),
        (["--gpus", "8GiB:cores=3", "--", "true"], "no option of a GPU"),
        (["--neighbour", "1GiB", "--", "true"], "Write 9GiB@0"),
        (["--neighbour", "1GiB@4", "--", "true"], "there is no GPU 4"),
        (["--neighbour", "12GiB@0", "--", "true"], "out of memory"),
        (["--fault", "nvmlInit", "--", "true"], "is no fault"),
        (["--fault", "nvmlInit=1.5", "--", "true"], "no error code"),
        (["--driver", "new", "--", "true"], "is no version of a driver"),
        (["--dmem", "--", "true"], "--dmem says what --driver VERSION is like: name that too"),
        (["--", "no-such-command"], "'no-such-command' cannot be run"),
        (["show"], "this is no simulated machine"),
        (["set", "--machine", "/nowhere", "--clear"], "there is no simulated machine at /nowhere"),
    ],
)
def test_a_mistake_is_told_in_a_line_and_answered_with_2(words: list[str], message: str) -> None:
    done = simgpu(*words)

    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_help_says_that_results_are_zeros() -> None:
    assert "RESULTS ARE" in simgpu("--help").stdout


def test_a_program_on_a_machine_leaves_who_starts_it_as_it_was() -> None:
    before = dict(os.environ)
    with Machine.create("8GiB") as machine:
        machine.run(["true"], env={"TFGPU_POLICY": "growth"}, check=True)
        machine.popen(["true"], env={"TFGPU_POLICY": "growth"}).wait()

    assert dict(os.environ) == before
