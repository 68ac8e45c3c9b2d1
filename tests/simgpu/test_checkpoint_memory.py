"""What a checkpoint takes of the host's memory, where it is to take it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cgroups import cgroup_of
from tests.simgpu.checkpoint_on_machine import OK, OPERATING_SYSTEM, resident
from tests.simgpu.talking import talker
from tests.sizes import CONTEXT, MIB
from tfgpu_magic.simgpu import Machine


def test_what_is_away_takes_as_much_of_the_hosts_memory_until_it_is_back() -> None:
    with Machine.create() as machine, talker(machine, "hold(256 * MIB)") as held, talker(machine) as caller:
        machine.set_checkpoints(host_memory=True)
        before = resident(held.pid)
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        assert abs(resident(held.pid) - before - 256 * MIB - CONTEXT) < 32 * MIB  # the system counts roughly
        assert caller.ask(f"unpark({held.pid})") == [OK, OK]
        assert abs(resident(held.pid) - before) < 32 * MIB


def test_a_cgroup_without_room_for_it_kills_the_process_midway(cgroup: Path) -> None:
    with Machine.create() as machine, talker(machine, "hold(256 * MIB)") as held, talker(machine) as caller:
        machine.set_checkpoints(host_memory=True)
        (cgroup / "cgroup.procs").write_text(str(held.pid))
        assert caller.ask(f"park({held.pid})") == [OK, OPERATING_SYSTEM]
        assert held.end() == -signal.SIGKILL
        assert machine.held() == 0


@pytest.fixture
def cgroup() -> Iterator[Path]:
    with cgroup_of(128 * MIB) as folder:
        yield folder
