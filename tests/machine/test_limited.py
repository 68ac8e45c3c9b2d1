"""What the service of the limits says, in a table whose board a process outside of the limited cgroup writes."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.sizes import GIB
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.machine.board import cgroup_limits as table
from tfgpu_magic.machine.driver.limits import DRIVERS_PART, UNLIMITED

if TYPE_CHECKING:
    from pathlib import Path

SLICE, UNIT = "/cg/system.slice", "/cg/system.slice/jupyter-ann.service"
NAME = "unit:jupyter-ann.service"
GPUS = tuple(Gpu(index=number, uuid=f"GPU-{number}", total=80 * GIB, free=60 * GIB) for number in (0, 1))
HELD = 10 * GIB


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the service writes, of a viewer in a user's unit."""
    monkeypatch.setattr(table, "STATE", tmp_path / "limits.json")
    monkeypatch.setattr(table, "cgroups", lambda: [UNIT, SLICE, "/cg"])
    monkeypatch.setattr(table, "cgroup_name", lambda _: NAME)
    table._read_limits.cache_clear()
    return tmp_path / "limits.json"


MINE, OTHER = {"uid": os.getuid(), "cgroup": NAME}, {"uid": os.getuid(), "cgroup": "unit:user-1.slice"}
ROWS = tuple(Process("0", pid, "C", HELD, **of) for pid, of in ((1, MINE), (2, OTHER), (3, {"uid": 0})))
LIMITED = {UNIT: {"GPU-0": [0, 32 * GIB, ""]}}
FREE = 32 * GIB - HELD - DRIVERS_PART


@pytest.mark.parametrize(
    ("limits", "rows", "limit", "free"),
    [
        (LIMITED, (), 32, FREE),
        # All that the unit holds counts, whoever runs it.
        (LIMITED, (Process("0", 4, "C", GIB, uid=os.getuid() + 1, cgroup=NAME),), 32, FREE - GIB),
        ({"/cg/system.slice/jupyter-bob.service": {"GPU-0": [0, GIB, ""]}}, (), None, 60 * GIB),
        # In a limited slice above, others hold memory too: what is free is unknown.
        (LIMITED | {SLICE: {"GPU-0": [0, 16 * GIB, ""]}}, (), 16, None),
        (LIMITED | {SLICE: {"GPU-0": [0, 48 * GIB, ""]}}, (), 32, None),
        # It is unknown what the unit holds: a figure is missing, or many are in one row.
        (LIMITED, (Process("0", 4, "C", None, uid=os.getuid(), cgroup=NAME),), 32, None),
        (LIMITED, (Process("0", -1 - os.getuid(), "C", 1, uid=os.getuid()),), 32, None),
        # No less than the GPU, none, and not in force.
        ({UNIT: {"GPU-0": [0, 80 * GIB, ""]}, SLICE: {"GPU-0": [0, 96 * GIB, ""]}}, (), None, 60 * GIB),
        ({UNIT: {"GPU-0": [GIB, UNLIMITED, ""]}}, (), None, 60 * GIB),
        ({UNIT: {"GPU-0": [0, GIB, "it is in MIG mode"]}}, (), None, 60 * GIB),
    ],
)
def test_the_limit_of_the_viewers_unit_counts_with_what_is_held_there(
    state: Path, limits: Any, rows: tuple[Process, ...], limit: int | None, free: int | None
) -> None:
    state.write_text(json.dumps({"limits": limits}))
    seen = table.with_cgroup_limits(Snapshot(time=1.0, gpus=GPUS, processes=ROWS + rows)).gpus

    assert seen[0] == GPUS[0]._replace(limit=limit and limit * GIB, free=free)
    assert seen[1] == GPUS[1]


@pytest.mark.parametrize(
    ("gpu", "limit", "free"),
    [
        (GPUS[0]._replace(listed=False), 32 * GIB, None),
        (GPUS[0]._replace(limit=GIB, free=0), GIB, 0),  # what the driver has told here stays
    ],
)
def test_what_the_driver_tells_of_a_gpu_itself_counts(state: Path, gpu: Gpu, limit: int, free: int | None) -> None:
    state.write_text(json.dumps({"limits": LIMITED}))
    (seen,) = table.with_cgroup_limits(Snapshot(time=1.0, gpus=(gpu,), processes=ROWS)).gpus

    assert (seen.limit, seen.free) == (limit, free)


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"limits": [1]}', '{"limits": {"' + UNIT + '": {"G": 7}}}'])
def test_without_the_service_or_with_what_no_version_writes_nothing_changes(state: Path, text: str | None) -> None:
    if text is not None:
        state.write_text(text)
    snapshot = Snapshot(time=1.0, gpus=GPUS)

    assert table.with_cgroup_limits(snapshot) is snapshot
