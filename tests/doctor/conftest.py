"""A simulated machine that the tests' own process is on, whose driver is hung only when it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slack import SLACK
from tfgpu_magic.doctor import child
from tfgpu_magic.doctor.checks import table
from tfgpu_magic.ground import child_process
from tfgpu_magic.simgpu import Machine


@pytest.fixture
def gpus() -> str:
    """The machine's GPUs; tests parametrize it where they need others."""
    return "2x8GiB"


@pytest.fixture
def machine(gpus: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(child_process, "PATIENCE", child_process.PATIENCE * SLACK)
    monkeypatch.setattr(child, "IMPORTING", child.IMPORTING * SLACK)
    monkeypatch.setattr(table, "LONGEST", table.LONGEST * SLACK)
    with Machine.create(gpus) as machine:
        for name, value in machine.environ().items():
            monkeypatch.setenv(name, value)
        yield machine


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give everything up that takes longer than a second."""
    monkeypatch.setattr(child_process, "PATIENCE", 1.0)
    monkeypatch.setattr(child, "IMPORTING", 1.0)
