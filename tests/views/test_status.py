"""What the magic returns, in a real IPython."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from IPython.core.formatters import DisplayFormatter

from tfgpu_magic.engine.status import Status, shown, status
from tfgpu_magic.model.report import Report
from tfgpu_magic.monitor.owners import attribution
from tfgpu_magic.monitor.table import fetch
from tfgpu_magic.monitor.table.fetch import HANGS
from tfgpu_magic.simgpu import Machine

from .tables import BUSY

if TYPE_CHECKING:
    from pathlib import Path


def test_ipython_shows_both_forms_and_print_the_text() -> None:
    data, _ = DisplayFormatter().format(Status(BUSY))  # type: ignore[no-untyped-call]

    assert set(data) == {"text/plain", "text/html"}
    assert data["text/plain"] == repr(Status(BUSY))
    assert data["text/plain"].startswith(" GPU  Name")
    assert data["text/html"].startswith('<div class="tfgpu">')


def test_processes_that_cannot_be_read_hold_up_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine.create("1x16GiB")
    neighbour = machine.add_neighbour("1GiB@0")
    for name, value in machine.environ().items():
        monkeypatch.setenv(name, value)
    hung = threading.Event()

    def hang(_: int) -> str:
        hung.wait()
        return ""

    monkeypatch.setattr(attribution, "command", hang)
    seen = [status(timeout=5) for _ in range(2)]
    hung.set()
    machine.close()

    owners = [[row.owner for row in one.table.processes if row.pid == neighbour.pid] for one in seen]
    assert owners == [["a process that does not answer"]] * 2
    assert HANGS not in (note for one in seen for note in one.table.notes)  # it is one of them, and not the machine


KERNEL = """
import os, sys, time
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.report_files import ReportFile
from tfgpu_magic.model.report import Report
report_file = ReportFile(BoardDirectory())
report_file.post(Report(pid=os.getpid(), summary="", notebook="/home/me/train.ipynb"))
gpus = open(os.environ["TFGPU_SIMGPU"])
print(flush=True)
sys.stdin.readline()
"""


LOOK = """
from tfgpu_magic.engine.engine import plan
from tfgpu_magic.engine.status import status
from tfgpu_magic.errors import Refused
print(*[row.owner for row in status(timeout=30).table.processes])
try:
    plan("limit 10GiB")
except Refused as error:
    print(error)
"""


def test_a_refusal_names_who_holds_memory_as_the_table_does(tmp_path: Path) -> None:
    with Machine.create("1x16GiB") as machine:
        env = {"TFGPU_MAGIC_DIR": str(tmp_path / "board")}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with machine.popen([sys.executable, "-c", KERNEL], env=env, **pipes) as kernel:
            assert kernel.stdout
            kernel.stdout.readline()
            machine.add_row(kernel.pid, 0, "9GiB")
            look = [sys.executable, "-c", LOOK]
            said = machine.run(look, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
            kernel.kill()

    table, refusal = said.split("\n", 1)
    assert table == "train.ipynb"
    assert "train.ipynb" in refusal


def test_a_status_is_had_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)

    status = shown(fetch.table(lambda _: Report(pid=1, summary="TensorFlow is not imported."), timeout=5))

    assert status.table.summary == "TensorFlow is not imported."
    assert "TensorFlow is not imported." in repr(status)
