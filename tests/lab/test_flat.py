"""What the service and a viewer keep in memory does not grow with the readings: processes come and go for ever."""

from __future__ import annotations

import gc
import os
from contextlib import closing
from typing import TYPE_CHECKING

from tests.processes import run
from tests.sizes import GIB
from tfgpu_magic.ground.rows import Table
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.lab.counters import UsageTotalsFiles
from tfgpu_magic.machine.board.machine_board import MachineDirectory
from tfgpu_magic.machine.board.snapshot_file import SnapshotReader, SnapshotWriter
from tfgpu_magic.machine.board.unused import IdleTracker
from tfgpu_magic.machine.owners.attribution import Owners
from tfgpu_magic.machine.owners.holders import HolderFacts, Holders
from tfgpu_magic.tell import page_json
from tfgpu_magic.tell.fetch import BoardContents
from tfgpu_magic.tell.tabulate import make_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GPUS, THERE, USERS, EVERY = 4, 64, 10, 2.0


def reading(tick: int) -> Snapshot:
    """Return a reading in which one process has ended since the last, and another has begun."""
    rows = (Process(str(pid % GPUS), 10_000 + pid, "C", GIB + tick, pid % 3) for pid in range(tick, tick + THERE))
    gpus = tuple(Gpu(index=index, uuid=f"GPU-{index}") for index in range(GPUS))
    processes = tuple(sorted(rows, key=lambda row: row.gpu))
    return Snapshot(time=1e9 + EVERY * tick, gpus=gpus, processes=processes, listed_at=1e9 + EVERY * tick)


def test_hundreds_of_readings_keep_no_more_than_some(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "machine.run").mkdir(mode=0o755)
    rows, kept = run(None, _kept, env={"TFGPU_SIMGPU": str(tmp_path / "machine")}, fresh=True)

    assert rows == GPUS * USERS // 2  # of the users on a GPU, each has a row
    assert kept[1] - kept[0] < THERE


def _kept() -> tuple[int, list[int]]:
    """Return how many rows there are in the end, and how many objects are kept after some readings and after all."""
    holders = Holders(lambda pid: HolderFacts(os.geteuid() + 1 + pid % USERS, pid, "unit:user-1.slice"))
    tracker, owners, table = IdleTracker(), Owners(0, trust=10.0), Table()
    with closing(MachineDirectory()) as place:
        writer, reader = SnapshotWriter(place), SnapshotReader(place)
        hours = UsageTotalsFiles(place, None)

        def tick(number: int) -> Mapping[str, object]:
            snapshot = tracker.step(holders.complete(reading(number), EVERY * number))
            writer.publish(snapshot)
            hours(snapshot)
            seen = reader.read().snapshot
            nonlocal table
            table = make_table(seen, BoardContents().facts(owners, seen, {}))
            return page_json.state(table)["rows"]

        kept = []
        for number in range(600):
            rows = tick(number)
            if number in (200, 599):
                gc.collect()
                kept.append(len(gc.get_objects()))

    return len(rows), kept
