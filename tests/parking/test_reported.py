"""How far a parking has come is in the process's own report, which views, policies and other notebooks read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.parking.notebooks import SIZE, Site, park
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.engine import other_processes
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.model.report import GpuUse, HeldMemory, Parking, Report
from tfgpu_magic.model.snapshot import Gpu, Snapshot
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.monitor.board.report_files import ReportFiles
from tfgpu_magic.notebook.publisher import Publisher
from tfgpu_magic.parking import reported, rows
from tfgpu_magic.policy.process_state import ProcessState

PARKED = Parking(phase="parked", since=5.0, held=(HeldMemory("GPU-0", GIB),), returns=2)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoardDirectory:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    return BoardDirectory()


@pytest.fixture(scope="module")
def other() -> Iterator[Report]:
    """Give the report of a parked process, which lives."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        uses = (GpuUse(gpu="GPU-0", limit=4 * GIB),)
        yield Report(pid=process.pid, summary="", uses=uses, notebook="a/b.ipynb", parked=PARKED)
        process.kill()


@pytest.mark.parametrize(("phase", "promised"), [("parked", False), ("restoring", True), ("checkpointing", True)])
def test_what_is_parked_is_promised_nothing_and_what_moves_is(
    monkeypatch: pytest.MonkeyPatch, place: BoardDirectory, other: Report, phase: str, promised: bool
) -> None:
    parked = replace(other, parked=replace(PARKED, phase=phase))
    monkeypatch.setattr(ReportFiles, "read", lambda _: (parked,))
    others = other_processes.now()
    snapshot = Snapshot(time=1.0, gpus=(Gpu(index=0, uuid="GPU-0", total=16 * GIB, free=16 * GIB, used=0),))
    process = others.added_to(ProcessState(), snapshot)

    assert bool(process.promises) is promised
    assert process.claims == {"GPU-0": 1.0}  # it comes back there


def test_a_first_line_imports_nothing_of_it_to_know(place: BoardDirectory) -> None:
    code = "import sys; from tfgpu_magic.engine import other_processes; other_processes.now(); print(*sys.modules)"
    environment = {**os.environ, "TFGPU_MAGIC_DIR": str(place.path)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert "tfgpu_magic.parking" not in said.stdout


def test_rows_have_what_a_process_reports(place: BoardDirectory, other: Report) -> None:
    found = rows.read([place], [other, Report(pid=1, summary="")])

    assert found is not None
    [one] = found.entries
    assert (one.pid, one.size, one.returns, one.name) == (other.pid, GIB, 2, "a/b.ipynb")


def test_what_a_later_version_reports_is_not_understood_and_hurts_nobody(place: BoardDirectory, other: Report) -> None:
    assert rows.read([place], [replace(other, parked=replace(PARKED, phase="on its way to the moon"))]) is None


def test_nothing_parks_while_a_report_asks_the_driver(place: BoardDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the call would be under way when the GPU state goes."""
    quiet: list[bool] = []

    def read() -> list[Any]:
        with ThreadPoolExecutor(1) as threads:  # the lock is this thread's
            quiet.append(threads.submit(cuda.quieten, 0.1).result())
        return []

    monkeypatch.setattr(registry, "awake", read)
    monkeypatch.setattr(registry, "pools", read)
    publisher = Publisher(lambda: "a.ipynb")
    try:
        publisher.publish(busy=False, active=None)
        quiet.append(cuda.quieten(0.1))
        publisher.publish(busy=False, active=None)  # which reads no pools
    finally:
        cuda.wake()
        publisher.close()

    assert quiet == [False, False, True, False]


def test_a_kernel_reports_each_way(site: Site) -> None:
    def says(pid: int) -> Parking | None:
        return next((one.parked for one in reported.reports() if one.pid == pid), None)

    with site.holding("train.ipynb") as notebook:
        assert says(notebook.pid) is None
        park(notebook)
        away = says(notebook.pid)
        assert away is not None
        assert (away.phase, sum(one.size for one in away.held)) == ("parked", SIZE + CONTEXT)

        notebook.run("pass")
        back = until(lambda: says(notebook.pid), lambda one: one is not None and one.phase == "back")
        assert back is not None
        assert back.returns == 1
