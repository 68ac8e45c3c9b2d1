"""The machine that isolated calls are tested on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.isolate.resident import Resident
from tfgpu_magic.simgpu import Machine


@pytest.fixture(scope="session")
def four_gpus() -> Iterator[Resident]:
    """A process on a machine of four GPUs of 8 GiB, for all tests: nothing of it may be held when one ends."""
    with Machine.create("4x8GiB") as machine:
        resident = Resident(machine)
        yield resident
        resident.close()


@pytest.fixture
def resident(four_gpus: Resident) -> Iterator[Resident]:
    """The process, and the promise that every byte comes back."""
    yield four_gpus
    assert four_gpus.machine.held() == 0
