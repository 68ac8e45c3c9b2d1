"""A copy for which there is no memory is refused, before the system kills the process that writes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cgroups import cgroup_of
from tests.isolate.test_caller import start
from tests.sizes import GIB, MIB
from tfgpu_magic.machine import host_memory


def system(root: Path, *, cgroup: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Return the folders of a machine with 8 GiB free whose files say so."""
    meminfo = f"MemFree:  1 kB\nMemAvailable:  {8 * GIB // 1024} kB\nSwapFree:  0 kB\nHugePages_Free:  0\n"
    for name, text in {"proc/self/cgroup": cgroup, "proc/meminfo": meminfo, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "proc", root / "cgroup"


V1 = "5:pids:/\n4:cpu,memory:/docker/one\n0::/\n"
V2 = "3:cpu:/\n0::/user/session\n"


def limited(folder: str, most: object, used: int, stat: str = "") -> dict[str, str]:
    """Return the files of a cgroup with a limit: of version 1 in a folder of `memory`, else of version 2."""
    names = ("limit_in_bytes", "usage_in_bytes") if folder.startswith("memory") else ("max", "current")
    texts = dict(zip([*names, "stat"], [f"{most}\n", f"{used}", stat], strict=True))
    return {f"cgroup/{folder}/memory.{name}": text for name, text in texts.items()}


@pytest.mark.parametrize(
    ("cgroup", "files", "left"),
    [
        (V2, {}, 8 * GIB),
        (V2, {"proc/meminfo": f"MemAvailable: {GIB // 1024} kB\nSwapFree: {2 * GIB // 1024} kB\n"}, 3 * GIB),
        (V2, limited("user/session", "max", 5), 8 * GIB),
        (V2, limited("user/session", 4 * GIB, GIB), 3 * GIB),
        (V2, limited("user", 2 * GIB, 3 * GIB), 0),
        (V2, limited(".", 4 * GIB, GIB), 3 * GIB),
        (V2, limited("user", 4 * GIB, 3 * GIB, f"file 9\ninactive_file {GIB}\nactive_file {GIB}\n"), 3 * GIB),
        (V1, limited("memory/docker/one", 4 * GIB, 3 * GIB, f"inactive_file 7\ntotal_inactive_file {GIB}\n"), 2 * GIB),
        (V1, limited("memory", 2**63 - 4096, 3 * GIB), 8 * GIB),
        ("nonsense", {}, 8 * GIB),
    ],
)
def test_the_least_of_all_limits_counts(cgroup: str, files: dict[str, str], left: int, tmp_path: Path) -> None:
    assert host_memory.free_bytes(*system(tmp_path, cgroup=cgroup, files=files)) == left


@pytest.mark.parametrize(
    ("vmstat", "events", "kills"), [(None, None, None), (2, None, 2), (None, 3, 3), (2, 3, 5), (0, 0, 0)]
)
def test_kills_are_counted_where_they_are_told(
    vmstat: int | None, events: int | None, kills: int | None, tmp_path: Path
) -> None:
    counts = {"proc/vmstat": vmstat, "cgroup/user/session/memory.events": events}
    files = {name: f"oom 9\noom_kill {n}\noom_group_kill 0\n" for name, n in counts.items() if n is not None}

    assert host_memory.oom_kills(*system(tmp_path, cgroup=V2, files=files)) == kills


def test_where_nobody_tells_nothing_is_refused_and_this_machine_tells(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"

    assert (host_memory.free_bytes(nowhere, nowhere), host_memory.oom_kills(nowhere, nowhere)) == (None, None)
    assert 0 < (host_memory.free_bytes() or 0) < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 100
    assert (host_memory.oom_kills() or 0) >= 0


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
