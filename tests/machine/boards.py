"""What tests of the board share: a message for it, and collectors that are looked for and waited for."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import psutil
import pytest

from tests.processes import kill, ours
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.machine.board import viewers
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import PREFIX
from tfgpu_magic.machine.board.snapshot_file import SnapshotReader, SnapshotWriter
from tfgpu_magic.machine.owners.pids import start_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfgpu_magic.machine.board.snapshot_file import Reading
    from tfgpu_magic.machine.driver.schedule import WantedIntervals
    from tfgpu_magic.simgpu import Machine

NOBODY = 65534
MODULE = "tfgpu_magic.machine.collector"
PATIENCE = 2.0
"""Seconds that NVML may take, for collectors that tests start."""
KERNEL = """
import os, sys
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.report_files import ReportFile, ReportFiles
from tfgpu_magic.ground.report import Report
report_file = ReportFile()
report_file.post(Report(pid=os.getpid(), summary=sys.argv[-1]))
{then}
print(flush=True)
sys.stdin.read()
report_file.close()
"""
"""A kernel that posts a report with a summary, then does something, and waits to be told to end."""
LOOKER = """
import select, sys
from tfgpu_magic.machine.see import Watch
with Watch(linger=3) as live:
    print(live.wait(240).snapshot.error, flush=True)
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        live.read()
"""
"""A program that looks until its standard input ends."""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away or mount a disk")


def snapshot(
    processes: int = 1,
    *,
    at: float = 1e9,
    used: int | None = GIB,
    uuid: str = "GPU-0",
    utilisation: float | None = None,
) -> Snapshot:
    rows = tuple(Process(gpu="0", pid=pid, kind="C", held=processes) for pid in range(1, processes + 1))
    gpu = Gpu(index=0, uuid=uuid, used=used, sensors={"utilisation": utilisation})
    return Snapshot(time=at, driver="1", gpus=(gpu,), processes=rows, notes=("a",))


def published(
    place: BoardDirectory,
    machine: Machine,
    rows: Iterable[tuple[int, int]],
    *,
    since: float,
    ago: float = 0.0,
    late: int = 0,
) -> None:
    """Leave the board of a collector that has seen memory held without use, and ended.

    Args:
        place: where it is.
        machine: whose GPUs they are.
        rows: the numbers of GPUs, and the pids of processes there.
        since: since when, in seconds since the epoch.
        ago: how many seconds ago it ended.
        late: by how many ticks the processes began later than those do that have these pids.
    """
    now = time.time() - ago
    gpus = tuple(Gpu(index=number, uuid=gpu.uuid) for number, gpu in enumerate(machine.gpus()))
    processes = tuple(
        Process(str(gpu), pid, "C", 1, 0, began=(start_time(pid) or 0) + late, unused=since) for gpu, pid in rows
    )
    writer = SnapshotWriter(place)
    writer.publish(Snapshot(time=now, gpus=gpus, processes=processes, listed_at=now))
    writer.end()


@contextlib.contextmanager
def board_of(machine: Machine, folder: Path) -> Iterator[BoardDirectory]:
    """Give the board of this machine that others have in a folder; to look there counts as no view."""
    with mock.patch.dict(os.environ, machine.environ(), TFGPU_MAGIC_DIR=str(folder)), BoardDirectory() as place:
        yield place


def pass_readings(place: BoardDirectory, count: int = 5) -> None:
    """Wait until so many more readings are on the board: what was not done meanwhile is not done later either."""
    reader = SnapshotReader(place)
    before = reader.read().sequence
    until(lambda: reader.read().sequence >= before + count)


def pass_report(place: BoardDirectory, pid: int) -> None:
    """Wait until a process has published one more report; each changes its file."""
    (file,) = place.list_names(f"{PREFIX}{pid}-")
    path = place.path / place.full_name(file)
    before = path.stat().st_mtime_ns
    until(lambda: path.stat().st_mtime_ns > before)


def wanted(place: BoardDirectory) -> WantedIntervals:
    """Return how often the viewers of a board want readings."""
    return viewers.read_wanted(place)


def collectors(machine: Machine) -> list[psutil.Process]:
    """Return the collectors of this machine, and the processes that are to become one."""
    return ours(machine, MODULE)


def the_collector(machine: Machine) -> psutil.Process:
    """Return the one collector of this machine, once those that came too late have left."""
    (collector,) = until(lambda: collectors(machine), lambda found: len(found) == 1)
    return collector


def end_collectors(machine: Machine) -> None:
    """Kill the collectors of this machine that are left."""
    kill(*collectors(machine))


@contextlib.contextmanager
def spoiled(board: Path, how: str) -> Iterator[None]:
    """Have a board's directory be none of ours alone until the block ends: a "link", "another's", "open to others"."""
    before, theirs = board.parent / "before", board.parent / "theirs"
    if how == "link":
        board.rename(before)
        theirs.mkdir(mode=0o700)
        board.symlink_to(theirs)
    elif how == "open to others":
        board.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(board, NOBODY, NOBODY)
    else:
        pytest.skip("only root can give a directory away")
    try:
        yield
        assert how != "link" or not list(theirs.iterdir())
    finally:
        if how == "link":
            board.unlink()
            before.rename(board)
        elif how == "another's":
            os.chown(board, os.geteuid(), os.getegid())
        else:
            board.chmod(0o700)


def fill(disk: Path) -> Path:
    """Fill a disk, and return the file that fills it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filler


def descriptors(folder: Path) -> int:
    """Return how many descriptors this process has open at a folder or below it; others' come and go by themselves."""
    places = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            places.append(entry.readlink())
    return sum(place.is_relative_to(folder) for place in places)


def fresh(seen: Reading) -> bool:
    return seen.stale_since is None and seen.age is not None and seen.age < 2
