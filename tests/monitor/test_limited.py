"""What the service of the limits says, in a table whose board a process outside of the limited cgroup writes."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.sizes import GIB
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.driver.limits import DRIVERS_PART, UNLIMITED
from tfgpu_magic.monitor.table import limited as table

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
    monkeypatch.setattr(table, "named", lambda _: NAME)
    table._limits.cache_clear()
    return tmp_path / "limits.json"


def limited(state: Path, limits: Any, *more: Process, gpus: tuple[Gpu, ...] = GPUS) -> Snapshot:
    """Return the limited snapshot of two GPUs, where the viewer's unit, and others beside it, hold memory."""
    state.write_text(json.dumps({"limits": limits}))
    mine, other = {"uid": os.getuid(), "cgroup": NAME}, {"uid": os.getuid(), "cgroup": "unit:user-1.slice"}
    rows = tuple(Process("0", pid, "C", HELD, **of) for pid, of in ((1, mine), (2, other), (3, {"uid": 0})))
    return table.limited(Snapshot(time=1.0, gpus=gpus, processes=rows + more))


def test_the_limit_of_the_viewers_unit_counts_with_what_is_held_there(state: Path) -> None:
    seen = limited(
        state,
        {
            UNIT: {"GPU-0": [0, 32 * GIB, ""], "GPU-1": [GIB, UNLIMITED, ""]},
            "/cg/system.slice/jupyter-bob.service": {"GPU-0": [0, GIB, ""], "GPU-1": [0, GIB, ""]},
        },
    )

    assert (seen.gpus[0].limit, seen.gpus[0].free) == (32 * GIB, 32 * GIB - HELD - DRIVERS_PART)
    assert seen.gpus[0].total == 80 * GIB
    assert seen.gpus[1] == GPUS[1]


def test_all_that_the_unit_holds_counts_whoever_runs_it(state: Path) -> None:
    seen = limited(
        state, {UNIT: {"GPU-0": [0, 32 * GIB, ""]}}, Process("0", 4, "C", GIB, uid=os.getuid() + 1, cgroup=NAME)
    )

    assert seen.gpus[0].free == 32 * GIB - HELD - GIB - DRIVERS_PART


@pytest.mark.parametrize("hard", [16 * GIB, 48 * GIB])
def test_what_is_free_is_unknown_below_a_limited_slice_in_which_others_hold_memory_too(state: Path, hard: int) -> None:
    seen = limited(state, {UNIT: {"GPU-0": [0, 32 * GIB, ""]}, SLICE: {"GPU-0": [0, hard, ""]}})

    assert (seen.gpus[0].limit, seen.gpus[0].free) == (min(hard, 32 * GIB), None)


@pytest.mark.parametrize(
    "row",
    [Process("0", 4, "C", None, uid=os.getuid(), cgroup=NAME), Process("0", -1 - os.getuid(), "C", 1, uid=os.getuid())],
    ids=["a figure is missing", "many in one row"],
)
def test_what_is_free_is_unknown_where_it_is_unknown_what_the_unit_holds(state: Path, row: Process) -> None:
    seen = limited(state, {UNIT: {"GPU-0": [0, 32 * GIB, ""]}}, row)

    assert (seen.gpus[0].limit, seen.gpus[0].free) == (32 * GIB, None)


def test_what_is_free_is_unknown_without_a_list_of_processes(state: Path) -> None:
    seen = limited(state, {UNIT: {"GPU-0": [0, 32 * GIB, ""]}}, gpus=(GPUS[0]._replace(listed=False),))

    assert (seen.gpus[0].limit, seen.gpus[0].free) == (32 * GIB, None)


def test_a_limit_that_is_no_less_than_the_gpu_is_none(state: Path) -> None:
    assert limited(state, {UNIT: {"GPU-0": [0, 80 * GIB, ""]}, SLICE: {"GPU-0": [0, 96 * GIB, ""]}}).gpus == GPUS


def test_what_is_not_in_force_limits_nothing(state: Path) -> None:
    assert limited(state, {UNIT: {"GPU-0": [0, GIB, "it is in MIG mode"]}}).gpus == GPUS


def test_what_the_driver_has_told_here_stays(state: Path) -> None:
    told = GPUS[0]._replace(limit=GIB, free=0)
    state.write_text(json.dumps({"limits": {UNIT: {"GPU-0": [0, 32 * GIB, ""]}}}))

    assert table.limited(Snapshot(time=1.0, gpus=(told,))).gpus == (told,)


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"limits": [1]}', '{"limits": {"' + UNIT + '": {"G": 7}}}'])
def test_without_the_service_or_with_what_no_version_writes_nothing_changes(state: Path, text: str | None) -> None:
    if text is not None:
        state.write_text(text)
    snapshot = Snapshot(time=1.0, gpus=GPUS)

    assert table.limited(snapshot) is snapshot
