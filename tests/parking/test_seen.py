"""What is parked as others see it: its report tells it, and it is promised nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sizes import GIB
from tfgpu_magic.engine import other_processes
from tfgpu_magic.model.report import GpuUse, HeldMemory, Parking, Report
from tfgpu_magic.model.snapshot import Gpu, Snapshot
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.parking import parts
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.policy.process_state import ProcessState


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoardDirectory:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    return BoardDirectory()


@pytest.mark.parametrize(
    ("phase", "promised"), [(Phase.PARKED, False), (Phase.RESTORING, True), (Phase.CHECKPOINTING, True)]
)
def test_what_is_parked_is_promised_nothing_and_what_moves_is(
    place: BoardDirectory, phase: Phase, promised: bool
) -> None:
    parked = Parking(phase=phase.value, since=5.0, held=(HeldMemory("GPU-0", GIB),))
    report = Report(pid=os.getpid(), summary="", uses=(GpuUse(gpu="GPU-0", limit=4 * GIB),), parked=parked)
    others = replace(other_processes.now(), reports=(report,), parked=parts.away(place, [report]))
    snapshot = Snapshot(time=1.0, gpus=(Gpu(index=0, uuid="GPU-0", total=16 * GIB, free=16 * GIB, used=0),))
    process = others.added_to(ProcessState(), snapshot)

    assert bool(process.promises) is promised
    assert process.claims == {"GPU-0": 1.0}  # it comes back there


def test_a_first_line_imports_nothing_of_it_to_know(place: BoardDirectory) -> None:
    code = "import sys; from tfgpu_magic.engine import other_processes; other_processes.now(); print(*sys.modules)"
    environment = {**os.environ, "TFGPU_MAGIC_DIR": str(place.path)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert "tfgpu_magic.parking.parked" not in said.stdout
