"""The host's memory and the cgroups that limit it, in files that stand in for a machine's and in a real cgroup."""

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


def machine(root: Path, cgroup: str, files: Mapping[str, int | str], available: int = 12 * GIB) -> Here:
    """Return a machine of 16 GiB whose files say so."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal:  {16 * GIB // 1024} kB\nMemAvailable:  {available // 1024} kB\nSwapFree:  0 kB\n"
    )
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, value in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(value))
    return Here(root, {})


V2 = "0::/user/session\n"
TIGHT_V2 = {
    "user/memory.max": 8 * GIB, "user/memory.current": GIB,
    "user/session/memory.max": 4 * GIB, "user/session/memory.current": 3 * GIB,
}  # fmt: skip


@pytest.mark.parametrize(
    ("cgroup", "files", "found", "figures"),
    [
        (V2, {}, "free", ("this machine", 16 * GIB, 12 * GIB)),
        (V2, {"user/memory.max": 64 * GIB, "user/memory.current": 5}, "free", ("this machine", 16 * GIB, 12 * GIB)),
        (V2, TIGHT_V2, "short", ("the cgroup /user/session", 4 * GIB, GIB)),
        (
            V2,
            {**TIGHT_V2, "user/session/memory.stat": f"inactive_file {2 * GIB}\n"},
            "free",
            ("the cgroup /user/session", 4 * GIB, 3 * GIB),
        ),
        (V2, {"memory.max": 13 * GIB, "memory.current": 2 * GIB}, "free", ("the cgroup /", 13 * GIB, 11 * GIB)),
    ],
)
def test_the_least_room_counts(
    cgroup: str, files: Mapping[str, int | str], found: str, figures: tuple[object, ...], tmp_path: Path
) -> None:
    report = look("host_memory", here=machine(tmp_path, cgroup, files))

    assert report.names[0] == f"host_memory.{found}"
    assert (
        tuple(report.facts(f"host_memory.{found}")[name] for name in ("where", "limit_bytes", "left_bytes")) == figures
    )


def test_a_machine_that_is_full_is_told(tmp_path: Path) -> None:
    report = look("host_memory", here=machine(tmp_path, V2, TIGHT_V2, available=GIB // 2))

    assert report.names == ["host_memory.short"]
    assert report.rows[0]["found"] == "Only 512 MiB of the 16 GiB of this machine may still be used."


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
