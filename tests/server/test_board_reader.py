"""What is news to the server's pages, and what only an administrator can put right."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

from tests.waiting import until
from tfgpu_magic.machine.see import Watch
from tfgpu_magic.server.feed import BROKEN, BoardReader

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tfgpu_magic.simgpu import Machine
    from tfgpu_magic.tell.page_json import WireState

KERNEL = """
import os, sys
from tests.figures import tensorflow
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFile
from tfgpu_magic.ground.report import GpuUse, Report
report_file = ReportFile()
for used in (1, 2):
    report_file.post(Report(pid=1, summary="", uses=(GpuUse(gpu="0", figures=tensorflow(used, used)),)))
    print(flush=True)
    sys.stdin.readline()
"""


def news(board_reader: BoardReader, *, fresh: bool = False) -> WireState:
    """Look until there is something new, and return it; `fresh` is what the driver has been read for."""

    def new() -> WireState | None:
        seen = board_reader.read_state({})
        return seen if board_reader.settled or not fresh else None

    seen = until(new, lambda seen: seen is not None, seconds=20)
    assert seen is not None
    return seen


def test_what_a_kernel_says_is_news_while_the_driver_is_not_read(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (machine.environ() | {"TFGPU_MAGIC_DIR": str(tmp_path / "board")}).items():
        monkeypatch.setenv(name, value)
    board_reader = BoardReader(logging.getLogger("test"), every=300)
    read = news(board_reader, fresh=True)["time"]
    with subprocess.Popen([sys.executable, "-c", KERNEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as kernel:
        assert kernel.stdin
        assert kernel.stdout
        kernel.stdout.readline()
        first = news(board_reader)
        unchanged = board_reader.read_state({})
        kernel.stdin.write(b"\n")
        kernel.stdin.flush()
        kernel.stdout.readline()
        second = news(board_reader)
        kernel.kill()
    board_reader.close()

    assert [one["time"] for one in (first, second)] == [read, read]
    assert unchanged is None
    assert read > 0


def test_a_board_that_is_not_where_it_should_be_is_said_in_the_log_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    monkeypatch.setattr(Watch, "why_not_best", "/tmp/it belongs to another user. Ask your administrator to remove it.")
    board_reader = BoardReader(logging.getLogger("test"))
    for number in range(3):
        board_reader._watcher._before = (number,)
        board_reader.read_state({})
    board_reader.close()

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Ask your administrator" in caplog.text


def test_a_look_that_fails_is_a_state_and_said_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    board_reader = BoardReader(logging.getLogger("test"))
    board_reader._watcher = SimpleNamespace(watch=None)  # type: ignore[assignment]
    seen = [board_reader.read_state({}) for _ in range(3)]

    assert [one and one["error"] for one in seen] == [BROKEN, None, None]
    assert caplog.text.count("Traceback") == 1
