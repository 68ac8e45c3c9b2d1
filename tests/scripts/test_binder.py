"""Binder's environment: the tour runs to its end on the simulated machine, in the memory that Binder gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.cgroups import cgroup_of
from tests.sizes import GIB

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
BINDER = ROOT / ".binder"
GIVEN = 2 * GIB

# JupyterLab listens as it does there, and beside it the tour runs from top to bottom.
TOUR = """
import os, subprocess, sys
from pathlib import Path
from tfgpu_magic.simgpu.demo.lab import touring
folder = Path(sys.argv[1])
with touring(folder, os.environ, 8888) as (lab, url):
    run = [sys.executable, "-m", "jupyter", "execute", "--timeout", "600", "--inplace", folder / "tour.ipynb"]
    status = subprocess.run(run).returncode
    sys.exit(status or lab.poll())
"""


@pytest.mark.timeout(1800)
def test_the_tour_runs_to_its_end_in_the_memory_that_binder_gives(tmp_path: Path) -> None:
    python = Path(os.environ.get("TFGPU_BINDER_PYTHON", sys.executable))
    environment = {
        **os.environ,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    with cgroup_of(GIVEN) as cgroup:
        enter = f'echo $$ >{cgroup}/cgroup.procs && exec {BINDER}/start python -c "$0" {tmp_path}'
        done = subprocess.run(["sh", "-c", enter, TOUR], env=environment, capture_output=True, text=True)
        peak, killed = _peak(cgroup), _killed(cgroup)

    print(f"At its highest: {peak / GIB:.2f} GiB of {GIVEN / GIB:.0f} GiB")
    assert (done.returncode, killed) == (0, 0), done.stdout + done.stderr
    tour = nbformat.read(tmp_path / "tour.ipynb", as_version=4)  # type: ignore[no-untyped-call]  # nbformat's
    # Text may come in pieces.
    shown = "".join(output.get("text", str(output)) for cell in tour.cells for output in cell.get("outputs", ()))
    assert "maria" in shown
    assert "2 replicas" in shown
    assert 0 < peak <= GIVEN


def _peak(cgroup: Path) -> int:
    (peak,) = (cgroup / name for name in ("memory.max_usage_in_bytes", "memory.peak") if (cgroup / name).exists())
    return int(peak.read_text())


def _killed(cgroup: Path) -> int:
    """How many processes the kernel has ended there for want of memory."""
    (events,) = (cgroup / name for name in ("memory.oom_control", "memory.events") if (cgroup / name).exists())
    return int(dict(line.split() for line in events.read_text().splitlines())["oom_kill"])


def test_what_binder_runs_can_be_run() -> None:
    assert {path.name for path in BINDER.iterdir() if os.access(path, os.X_OK)} == {"postBuild", "start"}
    assert (BINDER / "requirements.txt").read_text() == ".[demo]\n"
