"""A machine of two simulated GPUs that all users may share, and what runs there ends with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine.boards import end_collectors
from tests.processes import kill, ours
from tfgpu_magic.simgpu import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with Machine.create("2x16GiB") as machine:
        for name, value in machine.environ().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "own"))
        machine.path.parent.chmod(0o755)
        machine.path.chmod(0o666)
        yield machine
        kill(*ours(machine, "tfgpu_magic"))
        end_collectors(machine)
