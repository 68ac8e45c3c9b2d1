"""The host's memory and the cgroups that limit it, in files that stand in for a machine's and in a real cgroup.

A machine that is full, one limit and the page cache are scenes of `tests/transcript/scenes.py`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cgroups import cgroup_of
from tests.doctor.looking import look
from tests.sizes import GIB, MIB
from tfgpu_magic.doctor.machine import ThisMachine as Here

ROOT = str(Path(__file__).parents[2])
TIGHT = {
    "user/memory.max": 8 * GIB, "user/memory.current": GIB,
    "user/session/memory.max": 4 * GIB, "user/session/memory.current": 3 * GIB,
}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "found", "figures"),
    [
        ({"user/memory.max": 64 * GIB, "user/memory.current": 5}, "free", ("this machine", 16 * GIB, 12 * GIB)),
        (TIGHT, "short", ("the cgroup /user/session", 4 * GIB, GIB)),
        ({"memory.max": 13 * GIB, "memory.current": 2 * GIB}, "free", ("the cgroup /", 13 * GIB, 11 * GIB)),
    ],
)
def test_the_least_room_counts(
    files: Mapping[str, int], found: str, figures: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(
        f"MemTotal:  {16 * GIB // 1024} kB\nMemAvailable:  {12 * GIB // 1024} kB\nSwapFree:  0 kB\n"
    )
    (tmp_path / "proc/self/cgroup").write_text("0::/user/session\n")
    for name, value in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(value))

    facts = look("host_memory", here=Here(tmp_path, {})).facts(f"host_memory.{found}")

    assert (facts["where"], facts["limit_bytes"], facts["left_bytes"]) == figures


def test_a_real_cgroup_that_is_tight_is_named_with_its_limit() -> None:
    with cgroup_of(300 * MIB) as folder:
        code = (
            f"import os; open('{folder}/cgroup.procs', 'w').write(str(os.getpid())); "
            "from tests.doctor.looking import look; report = look('host_memory'); "
            "print(report.names[0], report.facts('host_memory.short'))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.startswith("host_memory.short ")
    assert f"'limit_bytes': {300 * MIB}" in done.stdout
    assert folder.name in done.stdout
