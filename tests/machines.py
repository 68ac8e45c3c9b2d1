"""Makes the fixture that a folder's or a module's tests have their simulated machine from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from tests.machine.boards import end_collectors
from tfgpu_magic.simgpu import Machine


def machine_of(gpus: str, *, scope: Literal["function", "module"] = "module") -> object:
    """Return a fixture that is a machine, whose collectors end with it; it goes by the name that it is assigned to.

    Args:
        gpus: its GPUs, as ``Machine.create`` takes them.
        scope: how long it lives: for one module's tests, or for one test.
    """

    @pytest.fixture(scope=scope)
    def machine() -> Iterator[Machine]:
        with Machine.create(gpus) as machine:
            yield machine
            end_collectors(machine)

    return machine
