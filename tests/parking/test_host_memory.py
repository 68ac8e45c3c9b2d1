"""Room in host memory: what must be left over, and the lock that one process of a user's has at a time."""

from __future__ import annotations

import bisect
from typing import Any

import pytest

from tests.processes import program
from tests.sizes import GIB, MIB
from tfgpu_magic.errors import Refused
from tfgpu_magic.machine import host_memory as readings
from tfgpu_magic.machine.host_memory import CgroupLimit
from tfgpu_magic.parking import host_memory
from tfgpu_magic.parking.host_memory import room, shortage


def host_room() -> int:
    """Return the bytes that may go to host memory now."""
    return bisect.bisect_left(range(2**20), True, key=lambda size: bool(host_memory.shortage(size * MIB))) * MIB


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the sizes of a machine, to be changed."""
    sizes: dict[str, Any] = {"MemTotal": 64 * GIB, "MemAvailable": 32 * GIB, "cgroups": []}
    monkeypatch.setattr(readings, "machine", lambda: sizes)
    monkeypatch.setattr(readings, "limits", lambda: iter(sizes["cgroups"]))
    return sizes


@pytest.mark.parametrize(
    ("total", "available", "size", "fits"),
    [
        (64, 32, 25, True),  # a tenth, 6.4 GiB, is left over
        (64, 32, 26, False),
        (16, 8, 4, True),  # 4 GiB are
        (16, 8, 5, False),
        (16, 3, 0, False),
    ],
)
def test_a_tenth_is_left_over_and_at_least_4_gib(
    machine: dict[str, Any], total: int, available: int, size: int, fits: bool
) -> None:
    machine |= {"MemTotal": total * GIB, "MemAvailable": available * GIB}

    assert (shortage(size * GIB) is None) is fits


def test_every_cgroup_counts_with_the_page_cache_that_it_can_drop(machine: dict[str, Any]) -> None:
    machine["cgroups"] = [
        CgroupLimit("/user/lab", most=20 * GIB, used=10 * GIB, cache=2 * GIB),
        CgroupLimit("/user", most=40 * GIB, used=10 * GIB, cache=0),
    ]

    assert shortage(8 * GIB) is None
    assert "12 GiB are available on the cgroup /user/lab" in str(shortage(9 * GIB))


def test_without_room_nothing_is_done(machine: dict[str, Any]) -> None:
    machine["MemAvailable"] = 7 * GIB  # of which 6.4 GiB are to be left over
    with pytest.raises(Refused, match="7 GiB are available on this machine"), room(GIB):
        raise AssertionError("there is no room")


def _takes_it() -> str:
    vars(host_memory)["shortage"] = lambda _: None
    _kept.append(room(0))
    _kept[0].__enter__()
    return "taken"


_kept: list[Any] = []


def test_one_process_of_a_user_has_the_room_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "shortage", lambda _: None)
    tries = iter([True, True, False])
    with program(None, _takes_it, fresh=True) as other:
        assert other.answer == "taken"
        with pytest.raises(Refused, match="Another process of yours"), room(0, lambda: next(tries)):
            raise AssertionError("it is taken")
    with room(0, lambda: False):
        pass  # it has ended
