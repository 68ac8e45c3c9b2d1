"""What the magic returns waits for no process that hangs."""

from __future__ import annotations

import threading

import pytest

from tfgpu_magic.engine.status import status
from tfgpu_magic.machine.owners import attribution
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.tell.tabulate import HANGS


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

    owners = [[row.owner.text for row in one.table.processes if row.process.pid == neighbour.pid] for one in seen]
    assert owners == [["a process that does not answer"]] * 2
    assert HANGS not in (note for one in seen for note in one.table.notes)  # it is one of them, and not the machine
