"""Those who come back take turns among themselves and with isolated calls, and claim only what they take at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.isolate import leasing
from tfgpu_magic.isolate.leasing import LeaseRequest, Leases
from tfgpu_magic.leases import allocation, lease_file
from tfgpu_magic.leases.lease_file import LeaseFile, LeaseTable
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.parking.checks import ROOM_MARGIN
from tfgpu_magic.parking.room import Place, rooms
from tfgpu_magic.policy.parser import parse

Enter = Callable[..., Place]


def held(size: int = 5 * GIB, *gpus: str) -> tuple[HeldMemory, ...]:
    return tuple(HeldMemory(gpu, size) for gpu in gpus or ("GPU-0",))


def snapshot(*free: int, total: int = 8 * GIB) -> Snapshot:
    gpus = [Gpu(index=n, uuid=f"GPU-{n}", total=total, used=total - size, free=size) for n, size in enumerate(free)]
    rows = [Process(gpu=gpu.label, pid=1, kind="C", held=gpu.used) for gpu in gpus if gpu.used]
    return Snapshot(time=1.0, gpus=tuple(gpus), processes=tuple(rows), listed_at=1.0)


@pytest.fixture
def table() -> LeaseTable:
    return LeaseTable()


@pytest.fixture
def enter(table: LeaseTable) -> Enter:
    """Give a process's place, behind all that are there."""
    return lambda *needs: Place(table, os.getpid(), held(*needs))


def call(table: LeaseTable, *, claimed: bool = False) -> int:
    """Write an isolated call into the table, which waits for the GPU or has it."""
    with table.turn() as page:
        ticket, taken = page.number(), (allocation.LeasedGpu("GPU-0", None),) if claimed else ()
        now, requested = time.monotonic(), () if claimed else ("GPU-0",)
        page.put(lease_file.LeaseEntry(number=ticket, slot=7, seen=now, requested=requested, leased=taken))
    return ticket


def test_room_that_is_free_is_claimed_and_given_up_again(table: LeaseTable, enter: Enter) -> None:
    place = enter()

    assert place.claim(snapshot(8 * GIB))
    with table.turn() as page:
        [claim] = page.leased()
        assert (claim.gpu, claim.size, claim.pid) == ("GPU-0", 5 * GIB + ROOM_MARGIN, os.getpid())
    place.leave()
    with table.turn() as page:
        assert not page.entries


def test_the_margin_and_a_context_for_the_placeholder_must_be_free_too(enter: Enter) -> None:
    place = enter()

    assert not place.claim(snapshot(5 * GIB + 511 * MIB))
    assert place.claim(snapshot(5 * GIB + 512 * MIB))


def test_one_gpu_has_one_at_a_time_and_two_gpus_two(enter: Enter) -> None:
    first, second, third = (enter(GIB, gpu) for gpu in ("GPU-0", "GPU-0", "GPU-1"))
    now = snapshot(8 * GIB, 8 * GIB)

    assert first.claim(now)
    assert not second.claim(now)
    assert third.claim(now)
    assert second.ahead() == (os.getpid(),)
    first.leave()
    assert second.claim(now)


def test_all_gpus_of_a_process_or_none(enter: Enter) -> None:
    place = enter(5 * GIB, "GPU-0", "GPU-1")

    assert not place.claim(snapshot(8 * GIB, GIB))
    assert place.claim(snapshot(8 * GIB, 8 * GIB))


def test_who_came_first_is_first_if_there_is_room_for_it(enter: Enter) -> None:
    first, second = enter(), enter()
    assert not first.claim(snapshot(GIB))
    assert not second.claim(snapshot(GIB))

    assert not second.claim(snapshot(8 * GIB))
    assert first.claim(snapshot(8 * GIB))


def test_nobody_waits_behind_one_that_other_programs_keep_out(enter: Enter) -> None:
    large, small = enter(5 * GIB), enter(GIB)
    now = snapshot(2 * GIB)

    assert not large.claim(now)
    assert small.ahead() == ()
    assert not small.claim(now)  # the large one has not looked since, and may have room now
    assert not large.claim(now)
    assert small.claim(now)


def test_an_isolated_call_that_has_the_gpu_is_waited_for(table: LeaseTable, enter: Enter) -> None:
    ticket = call(table, claimed=True)
    place = enter()

    assert not place.claim(snapshot(8 * GIB))
    with table.turn() as page:
        page.drop(ticket)
    assert place.claim(snapshot(8 * GIB))


def test_a_claim_ends_with_its_process_and_is_known_by_its_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    monkeypatch.setattr(lease_file, "_OURS", set())  # another test's table in this process may have the same number
    code = (
        "from tests.parking.test_room import *; from tfgpu_magic.leases.lease_file import LeaseFile; "
        "place = Place(LeaseFile(), os.getpid(), held()); "
        "print(place.claim(snapshot(8 * GIB)), flush=True); place.unclaim(); print(input(), flush=True); "
        "place.claim(snapshot(8 * GIB)); print(flush=True); input()"
    )
    ours = LeaseFile()
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        place = Place(ours, os.getpid(), held())
        assert place.ahead() == (other.pid,)  # it waits
        print(file=other.stdin, flush=True)
        other.stdout.readline(), other.stdout.readline()
        assert place.ahead() == (other.pid,)  # it has claimed its room
        assert not place.claim(snapshot(16 * GIB, total=16 * GIB))
        other.kill()
    assert place.claim(snapshot(8 * GIB))
    place.leave()
    ours.forget()


def test_an_isolated_call_that_came_first_is_served_first(table: LeaseTable, enter: Enter) -> None:
    call(table)
    place = enter()

    assert not place.claim(snapshot(8 * GIB))


def test_an_isolated_call_of_the_same_process_leaves_its_place_and_its_claim_alone(
    table: LeaseTable, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(leasing, "look", lambda *_: snapshot(8 * GIB, 8 * GIB))
    leases, (claimed, waits) = Leases(table), (enter(5 * GIB), enter(5 * GIB))
    assert claimed.claim(snapshot(8 * GIB, 8 * GIB))
    assert not waits.claim(snapshot(0, 8 * GIB))  # others hold it: nobody waits behind it
    with table.turn() as page:
        before = dict(page.entries)
    for _ in range(2):
        with leases.lease(LeaseRequest(parse("growth"))) as lease:
            assert [device.gpu.index for device in lease.devices] == [1]

    with table.turn() as page:
        assert page.entries == before


def test_a_gpu_that_is_not_there_is_waited_for(enter: Enter) -> None:
    place = enter(GIB, "GPU-9")

    assert not place.claim(snapshot(8 * GIB))
    [room] = rooms(held(GIB, "GPU-9"), snapshot(8 * GIB))
    assert (room.gpu, room.label, room.free) == ("GPU-9", "", None)


def test_who_holds_the_room_is_told_the_largest_first() -> None:
    now = snapshot(GIB)
    now = now._replace(processes=(*now.processes, Process(gpu="0", pid=os.getpid(), kind="C", held=8 * GIB)))
    [room] = rooms(held(), now)

    assert room.holders == ((os.getpid(), 8 * GIB), (1, 7 * GIB))
    assert room.free == GIB
