"""What is parked as others see it: the record tells it, promises nothing, and is set right by whoever looks."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.parking.conftest import Start, all_die, entry, park
from tests.parking.made_up import me
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.engine import other_processes
from tfgpu_magic.model.report import GpuUse, HeldMemory, Report
from tfgpu_magic.model.snapshot import Gpu, Snapshot
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.parking import record, rows
from tfgpu_magic.parking.record import ParkedProcess, ParkingRecord
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.policy.process_state import ProcessState
from tfgpu_magic.simgpu import Machine


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoardDirectory:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    return BoardDirectory()


def mine(phase: Phase) -> ParkedProcess:
    pid, began = me()
    return ParkedProcess(pid=pid, began=began, phase=phase, since=5.0, held=(HeldMemory("GPU-0", GIB),))


def kept(place: BoardDirectory, entry: ParkedProcess) -> None:
    record.write(place, ParkingRecord({(entry.pid, entry.began): entry}))


@pytest.mark.parametrize(
    ("phase", "promised"), [(Phase.PARKED, False), (Phase.RESTORING, True), (Phase.CHECKPOINTING, True)]
)
def test_what_is_parked_is_promised_nothing_and_what_moves_is(
    place: BoardDirectory, phase: Phase, promised: bool
) -> None:
    kept(place, mine(phase))
    report = Report(pid=os.getpid(), summary="", uses=(GpuUse(gpu="GPU-0", limit=4 * GIB),))
    others = replace(other_processes.now(), reports=(report,))
    snapshot = Snapshot(time=1.0, gpus=(Gpu(index=0, uuid="GPU-0", total=16 * GIB, free=16 * GIB, used=0),))
    process = others.added_to(ProcessState(), snapshot)

    assert bool(process.promises) is promised
    assert process.claims == {"GPU-0": 1.0}  # it comes back there


def test_a_first_line_reads_no_record_where_there_is_none(place: BoardDirectory) -> None:
    code = "import sys; from tfgpu_magic.engine import other_processes; other_processes.now(); print(*sys.modules)"
    environment = {**os.environ, "TFGPU_MAGIC_DIR": str(place.path)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert "tfgpu_magic.parking.record" not in said.stdout


def test_one_whose_waiting_nobody_ends_is_set_right_by_whoever_looks(machine: Machine, programs: Start) -> None:
    one = programs(GIB)
    assert park(one.pid).done
    programs(GIB)
    all_die(machine, one.pid, lambda: (found := entry(one.pid)) is not None and found.wanted)

    def wanted() -> bool:
        with BoardDirectory() as place:
            found = rows.read([place], ())
            return found is not None and found.entries[0].wanted

    until(lambda: not wanted())
    found = entry(one.pid)
    assert found is not None
    assert found.phase is Phase.PARKED
