"""Those who come back take turns among themselves and with isolated calls, and claim only what they take at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.parking.made_up import me
from tests.sizes import GIB, MIB
from tfgpu_magic.leases import allocation, lease_file
from tfgpu_magic.leases.lease_file import LeaseTable
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.parking.checks import ROOM_MARGIN
from tfgpu_magic.parking.record import ParkedProcess
from tfgpu_magic.parking.room import Waiting, rooms
from tfgpu_magic.parking.states import Phase

NOTHING = Snapshot(time=1.0)


def entry(size: int = 5 * GIB, *gpus: str, pid: int = 0) -> ParkedProcess:
    own, start = me()
    held = tuple(HeldMemory(gpu, size) for gpu in gpus or ("GPU-0",))
    return ParkedProcess(pid=pid or own, began=start, phase=Phase.PARKED, since=1.0, held=held)


def snapshot(*free: int, total: int = 8 * GIB) -> Snapshot:
    gpus = [
        Gpu(index=number, uuid=f"GPU-{number}", total=total, used=total - size, free=size)
        for number, size in enumerate(free)
    ]
    rows = [Process(gpu=gpu.label, pid=1, kind="C", held=gpu.used) for gpu in gpus if gpu.used]
    return Snapshot(time=1.0, gpus=tuple(gpus), processes=tuple(rows), listed_at=1.0)


@pytest.fixture
def table() -> LeaseTable:
    return LeaseTable()


@pytest.fixture
def waiting(table: LeaseTable) -> Waiting:
    return Waiting(table)


def call(table: LeaseTable, *, claimed: bool = False) -> int:
    """Write an isolated call into the table, which waits for the GPU or has it."""
    with table.turn() as page:
        ticket, taken = page.number(), (allocation.LeasedGpu("GPU-0", None),) if claimed else ()
        now, requested = time.monotonic(), () if claimed else ("GPU-0",)
        page.put(lease_file.LeaseEntry(number=ticket, slot=7, seen=now, requested=requested, leased=taken))
    return ticket


def test_room_that_is_free_is_claimed_and_given_up_again(table: LeaseTable, waiting: Waiting) -> None:
    place = waiting.enter(entry())

    assert waiting.claim(place, snapshot(8 * GIB))
    with table.turn() as page:
        [claim] = page.leased()
        assert (claim.gpu, claim.size, claim.pid) == ("GPU-0", 5 * GIB + ROOM_MARGIN, os.getpid())
    waiting.leave(place)
    with table.turn() as page:
        assert not page.entries


def test_the_margin_and_a_context_for_the_placeholder_must_be_free_too(waiting: Waiting) -> None:
    place = waiting.enter(entry())

    assert not waiting.claim(place, snapshot(5 * GIB + 511 * MIB))
    assert waiting.claim(place, snapshot(5 * GIB + 512 * MIB))


def test_one_gpu_has_one_at_a_time_and_two_gpus_two(waiting: Waiting) -> None:
    first, second, third = (waiting.enter(entry(GIB, gpu)) for gpu in ("GPU-0", "GPU-0", "GPU-1"))
    now = snapshot(8 * GIB, 8 * GIB)

    assert waiting.claim(first, now)
    assert not waiting.claim(second, now)
    assert waiting.claim(third, now)
    assert waiting.ahead(second) == [first.entry]
    waiting.leave(first)
    assert waiting.claim(second, now)


def test_all_gpus_of_a_process_or_none(waiting: Waiting) -> None:
    place = waiting.enter(entry(5 * GIB, "GPU-0", "GPU-1"))

    assert not waiting.claim(place, snapshot(8 * GIB, GIB))
    assert waiting.claim(place, snapshot(8 * GIB, 8 * GIB))


def test_who_came_first_is_first_if_there_is_room_for_it(waiting: Waiting) -> None:
    first, second = waiting.enter(entry()), waiting.enter(entry())
    assert not waiting.claim(first, snapshot(GIB))
    assert not waiting.claim(second, snapshot(GIB))

    assert not waiting.claim(second, snapshot(8 * GIB))
    assert waiting.claim(first, snapshot(8 * GIB))


def test_nobody_waits_behind_one_that_other_programs_keep_out(waiting: Waiting) -> None:
    large, small = waiting.enter(entry(5 * GIB)), waiting.enter(entry(GIB))
    now = snapshot(2 * GIB)

    assert not waiting.claim(large, now)
    assert waiting.ahead(small) == []
    assert waiting.claim(small, now)


def test_an_isolated_call_that_has_the_gpu_is_waited_for(table: LeaseTable, waiting: Waiting) -> None:
    ticket = call(table, claimed=True)
    place = waiting.enter(entry())

    assert not waiting.claim(place, snapshot(8 * GIB))
    with table.turn() as page:
        page.drop(ticket)
    assert waiting.claim(place, snapshot(8 * GIB))


def test_a_claim_ends_with_its_helper_and_not_with_the_process_that_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    monkeypatch.setattr(lease_file, "_OURS", set())  # another test's table in this process may have the same number
    code = (
        "import os, sys; from dataclasses import replace; from tests.parking.test_room import *; "
        "from tfgpu_magic.leases.lease_file import LeaseFile; "
        "waiting = Waiting(LeaseFile()); pid, began = map(int, sys.argv[1:]); "
        "place = waiting.enter(replace(entry(), pid=pid, began=began)); "
        "print(waiting.claim(place, snapshot(8 * GIB)), flush=True); os.kill(os.getpid(), 9)"
    )
    helper = subprocess.run([sys.executable, "-c", code, *map(str, me())], capture_output=True, text=True)

    assert helper.stdout == "True\n", helper.stderr
    with BoardDirectory() as place:
        assert list(lease_file.leases(place)) == []


def test_an_isolated_call_that_came_first_is_served_first(table: LeaseTable, waiting: Waiting) -> None:
    call(table)
    place = waiting.enter(entry())

    assert not waiting.claim(place, snapshot(8 * GIB))


def test_a_gpu_that_is_not_there_is_waited_for(waiting: Waiting) -> None:
    place = waiting.enter(entry(GIB, "GPU-9"))

    assert not waiting.claim(place, snapshot(8 * GIB))
    assert [(room.gpu, room.label, room.free) for room in rooms(place.entry, snapshot(8 * GIB))] == [
        ("GPU-9", "", None)
    ]


def test_who_holds_the_room_is_told_the_largest_first() -> None:
    now = snapshot(GIB)
    now = now._replace(processes=(*now.processes, Process(gpu="0", pid=os.getpid(), kind="C", held=8 * GIB)))
    [room] = rooms(entry(), now)

    assert room.holders == ((os.getpid(), 8 * GIB), (1, 7 * GIB))
    assert room.free == GIB
