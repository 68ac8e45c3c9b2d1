"""The doctor says what the driver holds this process to, and whether the administrator's limits are in force."""

from __future__ import annotations

import json
import os
import sys
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


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """A machine whose administrator, who runs this, has limits."""
    monkeypatch.setattr(trust, "ROOT", os.getuid())
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/tfgpu_magic.toml").write_text('[limits]\nhard = "40%"\n')
    (tmp_path / "etc/tfgpu_magic.toml").chmod(0o644)
    return Here(tmp_path, {})


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


def test_without_limits_to_hold_nothing_is_said(machine: Machine, here: Here, tmp_path: Path) -> None:
    assert look("limits", here=here).names == ["limits.away"]

    (tmp_path / "etc/tfgpu_magic.toml").write_text('policy = "growth"')
    assert look("limits", here=here).names == []


def test_a_flawed_file_is_a_fault_whatever_the_driver(machine: Machine, here: Here, tmp_path: Path) -> None:
    (tmp_path / "etc/tfgpu_magic.toml").write_text("[limits]\nhard = 40")

    assert look("limits", here=here).names == ["limits.flawed"]


def test_limits_that_are_not_in_force_are_counted_and_nobody_is_named(
    machine: Machine, here: Here, tmp_path: Path
) -> None:
    mig = {"GPU-x": [0, GIB, ""], "GPU-y": [0, GIB, "it is in MIG mode"]}
    state = {"limits": {"/jupyter-ann.service": mig}, "left": {"/jupyter-bo.service": "its user is not known"}}
    (tmp_path / "run/tfgpu_limits").mkdir(parents=True)
    (tmp_path / "run/tfgpu_limits/limits.json").write_text(json.dumps(state))
    report = look("limits", here=here)

    assert report.names == ["limits.not-set", "limits.none"]
    assert report.facts("limits.not-set") == {"count": 2}
