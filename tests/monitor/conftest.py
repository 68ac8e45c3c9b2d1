"""A simulated machine for the children of this process, which is where every look happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gpus() -> str:
    """The machine's GPUs; tests parametrize it where they need others."""
    return "4x16GiB"


@pytest.fixture
def machine(gpus: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with Machine.create(gpus) as machine:
        for name, value in machine.environ().items():
            monkeypatch.setenv(name, value)
        yield machine
