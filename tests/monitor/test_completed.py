"""A reading without lists has those of the one before, as far as they can still be true."""

from __future__ import annotations

import pytest

from tests.sizes import GIB
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.driver.readings import completed

GPUS = (Gpu(index=0, uuid="GPU-a", used=GIB), Gpu(index=1, uuid="GPU-b", used=GIB))
ROWS = (
    Process(gpu="0", pid=1, kind="C", held=GIB),
    Process(gpu="0", pid=2, kind="C+G", held=GIB),
    Process(gpu="0", pid=3, kind="G", held=GIB),
    Process(gpu="1", pid=1, kind="C", held=GIB),
)
BEFORE = Snapshot(time=1.0, gpus=GPUS, processes=ROWS, notes=("rows were dropped",))
MEMORY = Snapshot(time=2.0, gpus=tuple(gpu._replace(used=2 * GIB, listed=False) for gpu in GPUS))


def without_lists(fresh: Snapshot, before: Snapshot | None = BEFORE) -> Snapshot:
    return completed(fresh, before, processes=False, graphics=False)


def test_memory_is_fresh_and_rows_are_those_before() -> None:
    seen = without_lists(MEMORY)

    assert [(gpu.used, gpu.listed) for gpu in seen.gpus] == [(2 * GIB, True)] * 2
    assert (seen.time, seen.processes, seen.notes) == (2.0, ROWS, BEFORE.notes)


@pytest.mark.parametrize("change", [{"error": "the GPU is lost", "lost": True}, {"uuid": "GPU-new"}])
def test_a_gpu_that_fails_or_is_another_has_no_rows(change: dict[str, object]) -> None:
    fresh = MEMORY._replace(gpus=(MEMORY.gpus[0]._replace(**change), MEMORY.gpus[1]))  # type: ignore[arg-type]

    assert without_lists(fresh).processes == ROWS[3:]
    assert not without_lists(fresh).gpus[0].listed


def test_a_list_that_was_refused_stays_refused() -> None:
    refused = GPUS[0]._replace(
        listed=False, refused=True, error="no list of processes: the driver gives no permission to read it"
    )
    seen = without_lists(MEMORY, BEFORE._replace(gpus=(refused, GPUS[1])))

    assert (seen.gpus[0].error, seen.gpus[0].listed) == (refused.error, False)


def test_unified_memory_is_used_as_the_lists_said() -> None:
    before = BEFORE._replace(gpus=(GPUS[0]._replace(unified=True),))
    fresh = MEMORY._replace(gpus=(GPUS[0]._replace(used=None, unified=True),))

    assert without_lists(fresh, before).gpus[0].used == GIB


def test_without_graphics_lists_those_who_draw_are_as_before() -> None:
    computing = (
        Process(gpu="0", pid=1, kind="C", held=2 * GIB),
        Process(gpu="0", pid=2, kind="C", held=2 * GIB),
        Process(gpu="1", pid=4, kind="C", held=2 * GIB),
    )
    seen = completed(BEFORE._replace(processes=computing), BEFORE, processes=True, graphics=False)

    assert [(row.gpu, row.pid, row.kind, row.held) for row in seen.processes] == [
        ("0", 1, "C", 2 * GIB),
        ("0", 2, "C+G", 2 * GIB),
        ("0", 3, "G", GIB),
        ("1", 4, "C", 2 * GIB),
    ]


@pytest.mark.parametrize("fresh", [MEMORY._replace(gpus=(), error="no driver"), MEMORY])
def test_no_driver_and_no_reading_before_carry_nothing(fresh: Snapshot) -> None:
    assert without_lists(fresh, BEFORE if fresh.error else None) is fresh
