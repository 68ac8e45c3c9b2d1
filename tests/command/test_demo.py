"""`tfgpu demo` shows a simulated machine live, wherever it is started, and leaves nothing behind."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.command.shell import TFGPU, terminal_of, tfgpu
from tests.machines import machine_of
from tests.processes import runs
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x8GiB")
"""The machine that it is started on, as others are on real ones: it shows another."""

SECRET = {"TFGPU_POLICY": "nonsense", "TFGPU_CEILING": "nonsense", "TFGPU_MAGIC_DIR": "/nowhere"}


@pytest.mark.parametrize(("end", "status"), [("q", 0), (signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_it_is_drawn_until_it_is_ended_and_leaves_nothing(
    machine: Machine, end: str | signal.Signals, status: int, tmp_path: Path
) -> None:
    told = [f"{name}={value}" for name, value in {**SECRET, "TMPDIR": str(tmp_path)}.items()]
    with terminal_of(machine, "env", *told, *TFGPU, "demo") as terminal:
        until(lambda: "SIMULATED" in terminal.said and "train.ipynb" in terminal.said and "maria" in terminal.said)
        started = psutil.Process(terminal.process.pid).children(recursive=True)
        libraries = {Path(row.path).name for one in started for row in maps(one)}
        if isinstance(end, str):
            terminal.press(end)
        else:
            terminal.process.send_signal(end)

        assert terminal.process.wait(60 * SLACK) == status
        until(lambda: not any(map(runs, started)))
        assert len(started) >= 3
        assert "libcuda.so.1" in libraries
        assert [name for name in libraries if "tensorflow" in name] == []


def maps(process: psutil.Process) -> list[Any]:
    with suppress(psutil.Error):
        return process.memory_maps()
    return []


def test_without_a_terminal_it_is_one_look(machine: Machine) -> None:
    done = tfgpu(machine, "demo", env=SECRET)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("A SIMULATED machine of 4 GPUs, with two neighbours.\n")
    assert "train.ipynb" in done.stdout
    assert "Simulated GPU 16GiB" in done.stdout
