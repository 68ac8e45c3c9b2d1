"""What a call has answered is kept, whatever comes after; what it was given of this process's is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

import pytest

from tests.isolate.rig import run

pytestmark = pytest.mark.usefixtures("tracked", "light")


@pytest.fixture(scope="module")
def tracked() -> Iterator[None]:
    """Have a resource tracker run, as where this process uses shared memory; it ends with these tests."""
    resource_tracker.ensure_running()
    yield
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


# What is this process's


def attach(name: str) -> int:
    memory = SharedMemory(name=name)
    view = memory.buf
    assert view is not None
    view[0] += 1
    found = view[0]
    del view
    memory.close()
    return found


def test_shared_memory_of_this_process_outlives_the_calls_that_attach_to_it() -> None:
    memory = SharedMemory(create=True, size=1)
    try:
        assert [run(attach, (memory.name,), {}) for _ in range(2)] == [1, 2]
    finally:
        memory.close()
        memory.unlink()


# What it has answered


# Other frameworks


# Small ends
