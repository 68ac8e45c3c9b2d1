"""How a process ended is told in words that help."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tfgpu_magic.isolate.process import exit_cause


@pytest.mark.parametrize(
    ("before", "now", "memory", "told"),
    [
        (None, None, None, "cannot be told here"),
        (3, None, None, "cannot be told here"),
        (None, 4, None, "cannot be told here"),
        (3, 3, False, "the kernel's out-of-memory killer did not"),
        (3, 4, True, "most likely memory ran out"),
    ],
)
def test_a_kill_names_the_out_of_memory_killer_as_far_as_it_can(
    before: int | None, now: int | None, memory: bool | None, told: str
) -> None:
    died = exit_cause.died(-signal.SIGKILL, before, now)

    assert told in str(died)
    assert (died.status, died.signal, died.memory) == (-signal.SIGKILL, signal.SIGKILL, memory)


def test_another_signal_is_not_blamed_on_memory() -> None:
    died = exit_cause.died(-signal.SIGSEGV, 3, 4)

    assert str(died).endswith("SIGSEGV, segmentation fault.")
    assert (died.signal, died.memory) == (signal.SIGSEGV, False)


def system(root: Path, *, vmstat: int | None = None, events: int | None = None) -> int | None:
    """Return the kills on a machine whose files say so."""
    proc, cgroups = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (cgroups / "user/session").mkdir(parents=True)
    (proc / "self/cgroup").write_text("3:cpu:/\n0::/user/session\n")
    if vmstat is not None:
        (proc / "vmstat").write_text(f"pgfault 7\noom_kill {vmstat}\nswap_ra 1\n")
    if events is not None:
        (cgroups / "user/session/memory.events").write_text(f"oom 9\noom_kill {events}\noom_group_kill 0\n")
    return exit_cause.memory_kills(proc, cgroups)


@pytest.mark.parametrize(
    ("vmstat", "events", "kills"), [(None, None, None), (2, None, 2), (None, 3, 3), (2, 3, 5), (0, 0, 0)]
)
def test_kills_are_counted_where_they_are_told(
    tmp_path: Path, vmstat: int | None, events: int | None, kills: int | None
) -> None:
    assert system(tmp_path, vmstat=vmstat, events=events) == kills
    assert exit_cause.memory_kills(tmp_path / "nowhere", tmp_path / "nowhere") is None
    assert (exit_cause.memory_kills() or 0) >= 0  # of this machine
