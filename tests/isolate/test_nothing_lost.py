"""What a call has answered is kept, whatever comes after; what it was given of this process's is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.isolate import deeds
from tests.isolate.rig import run
from tests.sizes import MIB
from tfgpu_magic import IsolatedExecutor
from tfgpu_magic.isolate.process import host_memory
from tfgpu_magic.isolate.values import copies, pickling

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


def test_a_file_that_is_mapped_is_mapped_there_too_and_changes(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "file", np.int32, "w+", shape=(4, 300_000))
    mapped[:] = 1
    rows, plainly, fixed = mapped[1:], np.asarray(mapped), np.memmap(tmp_path / "file", np.int32, "r", shape=(8,))
    private = np.memmap(tmp_path / "file", np.int32, "c", shape=(2,))
    private[:] = 7

    def change(*given: Any) -> list[Any]:
        rows, backwards, plainly, fixed, private = given
        rows[0] = 2
        rows.flush()
        plainly[0, 0] = 3
        backwards[0, 0] = 4
        return [type(part).__name__ for part in given] + [fixed.flags.writeable, int(fixed[0]), private.tolist()]

    values = (rows, mapped[::-1, ::-2], plainly, fixed, private)
    sent = pickling.dump_call(change, values, {})

    assert sent.size < MIB
    assert run(change, values, {}) == [*["memmap"] * 2, "ndarray", *["memmap"] * 2, False, 3, [7, 7]]
    assert [mapped[1].max(), mapped[0, 0], mapped[3, -1]] == [2, 3, 4]


def test_a_copy_for_a_later_call_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.zeros(65 * MIB, np.uint8)
    monkeypatch.setattr(host_memory, "left", lambda: 100 * MIB)
    with pytest.raises(OSError, match="no room for 65 MiB"):
        copies.copied(pickling.dump(array))
    with IsolatedExecutor(gpus=0) as executor, pytest.raises(OSError, match="no room for 65 MiB"):
        executor.submit(deeds.echo, array).result()
    monkeypatch.setattr(host_memory, "left", lambda: 200 * MIB)
    kept = copies.copied(pickling.dump(array))
    monkeypatch.setattr(host_memory, "left", lambda: 0)

    assert copies.copied(pickling.dump(array)).size == kept.size  # what is copied already takes no more


# What it has answered


# Other frameworks


# Small ends


def test_memory_that_a_stream_of_small_parts_takes_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "left", lambda: 70 * MIB)

    assert pickling.dump(bytes(MIB)).size > MIB
    with pytest.raises(OSError, match="no room"):
        pickling.dump([bytes(10 * MIB) + bytes([number]) for number in range(10)])
