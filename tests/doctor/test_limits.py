"""The doctor says what the driver holds this process to, and what a ceiling is beside that.

Limits that are not in force, or flawed, are scenes of `tests/transcript/scenes.py`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cgroups import cgroup2
from tests.doctor.looking import look
from tests.processes import PATIENCE
from tests.sizes import GIB
from tests.slack import SLACK
from tfgpu_magic.doctor.machine import ThisMachine as Here
from tfgpu_magic.root import trust
from tfgpu_magic.simgpu import Machine

INSIDE = """
import json, os, sys
from pathlib import Path
import pynvml
from tests.doctor.looking import look
folder, soft, hard = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
(folder / "cgroup.procs").write_text(str(os.getpid()))
pynvml.nvmlInit()
for again in (True, False):
    try:
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t(os.fsencode(folder), soft, hard)
        pynvml.nvmlDeviceSetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByIndex(1), limits)
    except pynvml.NVMLError:
        assert again
print(json.dumps(look(*sys.argv[4:]).rows))
"""

STATED = '{"limits": {}, "left": {}}'
"""What the service that sets limits writes where all are in force."""


def inside(machine: Machine, folder: Path, *checks: str) -> list[dict[str, Any]]:
    """Do checks in a cgroup that has 4 GiB of the second GPU."""
    machine.set_driver("615.71.09")
    done = machine.run(
        [sys.executable, "-c", INSIDE, folder, str(GIB), str(4 * GIB), *checks],
        capture_output=True, text=True, timeout=PATIENCE * SLACK, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def test_a_limit_is_told(machine: Machine) -> None:
    with cgroup2() as folder:
        (row,) = inside(machine, folder, "limits")

    assert (row["name"], row["facts"]) == ("limits.held", {"gpu": "1", "limit_bytes": 4 * GIB})


@pytest.mark.parametrize(("ceiling", "names"), [("limit 40%", ["policy.twice"]), ("limit 2GiB", [])])
def test_a_ceiling_that_is_a_share_of_what_the_driver_allows_is_a_warning(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ceiling: str, names: list[str]
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    (tmp_path / "profile_default").mkdir()
    (tmp_path / "profile_default/ipython_config.py").write_text(
        "c = get_config()\nc.InteractiveShellApp.extra_extensions = ['tfgpu_magic']\n"
        f"c.TfGpuMagics.ceiling = '{ceiling}'\n"
    )
    with cgroup2() as folder:
        rows = inside(machine, folder, "policy", "gpus")

    assert [row["name"] for row in rows] == ["policy.under", *names, *["gpus.works"] * 2]
    if names:
        assert (rows[1]["facts"]["gpu"], rows[1]["facts"]["limit_bytes"]) == ("1", 4 * GIB)
        assert "is a share of the 4 GiB that the driver allows here of GPU 1: 1.6 GiB." in rows[1]["found"]
    assert [row["facts"]["total_bytes"] // GIB for row in rows if row["name"] == "gpus.works"] == [8, 4]


@pytest.mark.usefixtures("machine")
def test_without_limits_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "ROOT", os.getuid())
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/tfgpu_magic.toml").write_text('policy = "growth"')
    (tmp_path / "etc/tfgpu_magic.toml").chmod(0o644)

    assert look("limits", here=Here(tmp_path, {})).names == []


@pytest.mark.parametrize(("ago", "names"), [(0, ["limits.none"]), (3600, ["limits.away"])])
@pytest.mark.usefixtures("machine")
def test_what_the_service_wrote_an_hour_ago_is_no_word_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ago: float, names: list[str]
) -> None:
    monkeypatch.setattr(trust, "ROOT", os.getuid())
    state = tmp_path / "run/tfgpu_limits/limits.json"
    for path, text in ((tmp_path / "etc/tfgpu_magic.toml", '[limits]\nhard = "40%"\n'), (state, STATED)):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o644)
    written = time.time() - ago
    os.utime(state, (written, written))

    assert look("limits", here=Here(tmp_path, {})).names == names
