"""A copy for which there is no memory is refused, before the system kills the process that writes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cgroups import cgroup_of
from tests.isolate.test_caller import start
from tests.sizes import GIB, MIB
from tfgpu_magic.isolate import host_memory


def system(root: Path, *, cgroup: str, files: dict[str, str], available: int = 8 * GIB, swap: int = 0) -> int | None:
    """Return what is left on a machine whose files say so."""
    (root / "proc/self").mkdir(parents=True)
    meminfo = (
        f"MemFree:  1 kB\nMemAvailable:  {available // 1024} kB\nSwapFree:  {swap // 1024} kB\nHugePages_Free:  0\n"
    )
    (root / "proc/meminfo").write_text(meminfo)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        (root / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "cgroup" / name).write_text(text)
    return host_memory.left(root / "proc", root / "cgroup")


V1 = "5:pids:/\n4:cpu,memory:/docker/one\n0::/\n"
V2 = "0::/user/session\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "left"),
    [
        (V2, {}, 8 * GIB),
        (V2, {"user/session/memory.max": "max\n", "user/session/memory.current": "5\n"}, 8 * GIB),
        (V2, {"user/session/memory.max": f"{4 * GIB}", "user/session/memory.current": f"{GIB}"}, 3 * GIB),
        (V2, {"user/memory.max": f"{2 * GIB}", "user/memory.current": f"{3 * GIB}"}, 0),
        (V2, {"memory.max": f"{4 * GIB}", "memory.current": f"{GIB}"}, 3 * GIB),
        (
            V2,
            {
                "user/session/memory.max": f"{4 * GIB}",
                "user/session/memory.current": f"{3 * GIB}",
                "user/session/memory.stat": f"file 9\ninactive_file {GIB}\nactive_file {GIB}\n",
            },
            3 * GIB,
        ),
        (
            V1,
            {
                "memory/docker/one/memory.limit_in_bytes": f"{4 * GIB}",
                "memory/docker/one/memory.usage_in_bytes": f"{3 * GIB}",
                "memory/docker/one/memory.stat": f"inactive_file 7\ntotal_inactive_file {GIB}\n",
            },
            2 * GIB,
        ),
        (
            V1,
            {"memory/memory.limit_in_bytes": f"{2**63 - 4096}", "memory/memory.usage_in_bytes": f"{3 * GIB}"},
            8 * GIB,
        ),
        ("nonsense", {}, 8 * GIB),
    ],
)
def test_the_least_of_all_limits_counts(cgroup: str, files: dict[str, str], left: int, tmp_path: Path) -> None:
    assert system(tmp_path, cgroup=cgroup, files=files) == left


def test_swap_is_room_too_and_where_nobody_tells_nothing_is_refused(tmp_path: Path) -> None:
    assert system(tmp_path, cgroup=V2, files={}, swap=GIB) == 9 * GIB
    assert host_memory.left(tmp_path / "nowhere", tmp_path / "nowhere") is None
    assert 0 < (host_memory.left() or 0) < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 100  # of this one


@pytest.fixture
def cgroup() -> Iterator[Path]:
    with cgroup_of(300 * MIB) as folder:
        yield folder


def test_a_caller_whose_memory_would_run_out_lives_and_is_told(cgroup: Path) -> None:
    code = f"""
    Path("{cgroup}/cgroup.procs").write_text(str(os.getpid()))
    array = np.ones(180 * 2**20, np.uint8)
    try:
        run(deeds.echo, (array,), {{}})
    except OSError as error:
        print(error.strerror)
    del array
    print(run(deeds.echo, (2,), {{}}))
    FORK_SERVER.stop()
    """
    with start(code) as program:
        out, err = program.communicate(timeout=240)

    assert (program.returncode, err) == (0, "")
    assert out.startswith("There is no room for 180 MiB of memory to share with another process: ")
    assert out.endswith("are free\n2\n")
