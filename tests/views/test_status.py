"""What the magic returns, in a real IPython."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import psutil
from IPython.core.formatters import DisplayFormatter

from tfgpu_magic.monitor.report import Report
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.views.status import HANGS, Status, status

from .tables import BUSY

if TYPE_CHECKING:
    import pytest


def test_ipython_shows_both_forms_and_print_the_text() -> None:
    data, _ = DisplayFormatter().format(Status(BUSY))  # type: ignore[no-untyped-call]

    assert set(data) == {"text/plain", "text/html"}
    assert data["text/plain"] == repr(Status(BUSY))
    assert data["text/plain"].startswith(" GPU  Name")
    assert data["text/html"].startswith('<div class="tfgpu">')


def test_processes_that_cannot_be_read_hold_up_no_cell_and_no_more_than_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine.create("1x16GiB")
    machine.add_neighbour("1GiB@0")
    for name, value in machine.environ().items():
        monkeypatch.setenv(name, value)
    hung = threading.Event()

    def hang(process: psutil.Process) -> list[str]:
        hung.wait(60)
        return []

    monkeypatch.setattr(psutil.Process, "cmdline", hang)
    begun = time.monotonic()
    first = status(timeout=5)
    between = time.monotonic()
    shown = [first, status(timeout=5), status(timeout=5)]
    hung.set()
    machine.close()

    assert between - begun < 30
    assert [[row.owner for row in one.table.processes] for one in shown] == [["others"]] * 3
    assert [one.table.notes for one in shown] == [(HANGS,)] * 3
    assert time.monotonic() - between < 15  # none waits for what hangs already


def test_a_status_is_had_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)

    shown = status(lambda _: Report(pid=1, summary="TensorFlow is not imported."), timeout=5)

    assert shown.table.summary == "TensorFlow is not imported."
    assert "TensorFlow is not imported." in repr(shown)
