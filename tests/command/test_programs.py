"""The books' two programs, unchanged, on the real TensorFlow; the driver's account is the judge."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.command.shell import running, tfgpu
from tests.sizes import CONTEXT, GIB, MIB
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

PROGRAM = """\
import sys
import tensorflow as tf

for gpu in tf.config.list_logical_devices("GPU"):
    with tf.device(gpu.name):
        kept = tf.zeros(1000)
print("ready", flush=True)
sys.stdin.read()
"""
PAGE = Path(__file__).parents[2] / "docs" / "scripts.md"
SHOWN = PAGE.read_text().partition("-- program_3.py\n")[2].partition("```")[0]
"""What the documentation shows of the third program."""
LIMIT = 8 * GIB * 40 // 100 // MIB * MIB + CONTEXT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("program_1.py", "program_2.py", "program_3.py"):
        (tmp_path / name).write_text(PROGRAM)
    return tmp_path


def _held(machine: Machine, pid: int) -> list[int]:
    return [machine.held(pid=pid, gpu=gpu.index) for gpu in machine.gpus()]


def test_two_programs_at_once_have_their_gpus_and_40_percent_of_each(folder: Path) -> None:
    with (
        Machine.create("4x8GiB") as machine,
        running(machine, "visible 3,2; limit 40%", "--", "program_1.py", cwd=folder) as one,
        running(machine, "visible 0,1; limit 40%", "--", "program_2.py", cwd=folder) as two,
    ):
        held = _held(machine, one.pid), _held(machine, two.pid)

    assert held == ([0, 0, LIMIT, LIMIT], [LIMIT, LIMIT, 0, 0])


def test_a_third_at_40_percent_is_refused_and_told_who_holds_it(folder: Path) -> None:
    with (
        Machine.create("1x8GiB") as machine,
        running(machine, "limit 40%", "--", "program_1.py", cwd=folder) as one,
        running(machine, "limit 40%", "--", "program_2.py", cwd=folder) as two,
    ):
        third = tfgpu(machine, "run", "limit 40%", "--", "program_3.py", cwd=folder)

        def rows() -> list[Any]:
            return [json.loads(tfgpu(machine, "status", "--json").stdout)["state"]["rows"][f"0 {pid}"] for pid in pids]

        pids = one.pid, two.pid
        row, _ = until(rows, lambda found: all("figures" in row for row in found), despite=KeyError)
        table = tfgpu(machine, "status").stdout
        held = _held(machine, one.pid), _held(machine, two.pid)
        two.process.send_signal(signal.SIGKILL)
        until(lambda: f"{two.pid}" not in tfgpu(machine, "status").stdout, seconds=3)

    assert held == ([LIMIT], [LIMIT])
    assert (third.stdout, third.returncode) == ("", 75)
    assert third.stderr == SHOWN
    told = [line.split() for line in table.splitlines()]
    assert sorted(line[3:] for line in told if line[3:4] in (["program_1.py"], ["program_2.py"])) == [
        [name, "3.4", "GiB", "limit", "3.2", "GiB"] for name in ("program_1.py", "program_2.py")
    ]
    assert (row["owner"], row["policy"], row["held"]) == ("program_1.py", "limit 3.2 GiB", LIMIT)
    assert row["figures"]["TensorFlow"]["in use"] > 0


def test_a_program_that_grows_is_followed(folder: Path) -> None:
    (folder / "grows.py").write_text(
        f"import tensorflow as tf, time\nkept = [tf.zeros({16 * MIB // 4})]\nprint('ready', flush=True)\n"
        f"while len(kept) < 200: kept.append(tf.zeros({16 * MIB // 4})); time.sleep(.5)"
    )

    def used(pid: int) -> int:
        row = json.loads(tfgpu(machine, "status", "--json").stdout)["state"]["rows"][f"0 {pid}"]
        return int(row.get("figures", {}).get("TensorFlow", {}).get("in use", 0))

    with Machine.create("1x8GiB") as machine, running(machine, "growth", "--", "grows.py", cwd=folder) as program:
        first = until(lambda: used(program.pid), despite=KeyError)
        until(lambda: used(program.pid) >= first + 48 * MIB)
