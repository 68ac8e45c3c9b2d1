"""What a checkpoint takes of the host's memory, where it is to take it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simgpu.checkpoint_on_machine import OK, OPERATING_SYSTEM, resident
from tests.simgpu.talking import talker
from tests.sizes import CONTEXT, MIB
from tests.waiting import until
from tfgpu_magic.simgpu import Machine


def test_what_is_away_takes_as_much_of_the_hosts_memory_until_it_is_back() -> None:
    with Machine.create() as machine, talker(machine, "hold(256 * MIB)") as held, talker(machine) as caller:
        machine.set_checkpoints(host_memory=True)
        before = resident(held.pid)
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        assert 0 <= resident(held.pid) - before - 256 * MIB - CONTEXT < 32 * MIB
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
    """Return a real cgroup, of either version, that has 128 MiB; skip where none can be made."""
    name = f"tfgpu-{os.getpid()}"
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root, name)
        try:
            group.mkdir()
        except OSError:
            continue
        if not (group / limit).exists():  # it is no cgroup, or not one of memory
            group.rmdir()
            continue
        (group / limit).write_text(str(128 * MIB))
        yield group
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
        return
    pytest.skip("no cgroup with a limit of memory can be made here")
