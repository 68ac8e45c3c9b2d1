"""What a collector meets: a driver that hangs, fails or goes, and a board that is removed, replaced or full."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from tests.machine.boards import PATIENCE, collectors, fill, fresh, root_only, spoiled, the_collector
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.machine import collector, collector_start, see
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.snapshot_file import SNAPSHOT
from tfgpu_magic.machine.board.viewers import LOCK
from tfgpu_magic.machine.collector import BLIND_FOR, CollectorConfig
from tfgpu_magic.machine.owners import holders
from tfgpu_magic.machine.owners.holders import HolderFacts
from tfgpu_magic.machine.see import Watch

if TYPE_CHECKING:
    from tfgpu_magic.simgpu import Machine


# --- what the driver does ---


def test_a_hang_is_stale_within_three_seconds_and_over_when_nvml_answers(machine: Machine, live: Watch) -> None:
    live.wait(60)
    machine.hang("nvmlDeviceGetMemoryInfo", 60)
    seen = until(live.read, lambda seen: seen.stale_since is not None, seconds=3)
    machine.clear_faults()

    assert seen.snapshot.error is None  # the last figures, and since when they are old
    assert seen.snapshot.time <= (seen.stale_since or 0) < time.time()
    until(live.read, fresh, seconds=PATIENCE + 5)  # the one that hangs gives up, and another starts
    the_collector(machine)


def test_a_process_that_cannot_be_read_keeps_no_other_from_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    never, asked = threading.Event(), list[int]()

    def read(pid: int) -> HolderFacts:
        asked.append(pid)
        if pid == 1:
            never.wait(60)
        return HolderFacts(1000, 5)

    monkeypatch.setattr(holders, "PROCESS_TIMEOUT", 2 * SLACK)
    known, rows = holders.Holders(read), tuple(Process("0", pid, "C", 1) for pid in (1, 2, 3))
    found = [known.complete(Snapshot(time=0.0, processes=rows), at).processes for at in (0.0, 5.0, 20.0)]
    never.set()

    assert [[row.began for row in each] for each in found] == [[None, 5, 5]] * 3
    assert asked == [1, 2, 3, 2, 3]


def test_what_is_read_of_processes_is_no_time_in_the_driver(
    folder: Path, here: BoardDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]

    def passes(seconds: float) -> None:
        clock[0] += seconds

    def asked(*_: object) -> Snapshot:
        passes(0.25)
        return Snapshot(time=1e9, gpus=(Gpu(0),), processes=(Process("0", 1, "C", 1),), listed_at=1e9)

    def slow(_: int) -> HolderFacts:
        passes(5.0)
        return HolderFacts(1000, 5)

    monkeypatch.setattr(collector, "read", asked)
    monkeypatch.setattr(
        collector, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time, time_ns=time.time_ns)
    )
    readings = collector._Readings(here, CollectorConfig(read_holder=slow))
    monkeypatch.setattr(readings._schedule, "record", done := mock.Mock())
    readings.step(clock[0])

    assert clock == [1005.25]
    assert done.call_args.args == ("graphics", 1000.0, 0.25)


def test_while_one_hangs_no_look_waits_for_it_and_no_other_joins_it(
    machine: Machine, machine_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.hang("nvmlInit", 3600)
    monkeypatch.setattr(see, "CHECK_EVERY", 0.0)
    with Watch(patience=3600) as live:
        until(live.read, lambda seen: seen.stale_since is not None, seconds=4)
        until(lambda: machine.calls().get("nvmlInitWithFlags"))
        live._start_at = 0.0
        monkeypatch.setattr(collector_start, "Start", launch := mock.Mock())
        seen = live.read()

        launch.assert_not_called()
        assert seen.stale_since is not None
        assert (seen.age, seen.snapshot.error) == (None, "The GPUs are being asked for the first time.")
        the_collector(machine)


def test_one_that_finds_no_library_ends_so_that_anothers_may_try(
    machine: Machine, machine_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbour = machine.add_neighbour("9GiB@1")
    with monkeypatch.context() as patching, Watch(linger=120) as live:
        patching.delenv("LD_LIBRARY_PATH")  # where the library is
        first = live.wait(60).snapshot.error
    with Watch(linger=3) as live:
        seen = until(live.read, lambda seen: bool(seen.snapshot.processes), seconds=BLIND_FOR + 10)
        until(lambda: len(collectors(machine)), lambda count: count == 1, every=0.5)

    assert first is not None
    assert first.startswith("No NVIDIA driver was found")
    assert [(row.gpu, row.pid, row.held) for row in seen.snapshot.processes] == [("1", neighbour.pid, 9 * GIB)]


def test_a_lost_gpu_says_so_others_live_on_and_it_comes_back(machine: Machine, live: Watch) -> None:
    machine.add_neighbour("9GiB@1")
    live.wait(60)
    machine.lose(0)
    lost = until(live.read, lambda seen: seen.snapshot.gpus[0].lost, seconds=3).snapshot
    machine.restore(0)

    assert lost.gpus[1].used == 9 * GIB
    assert [row.gpu for row in lost.processes] == ["1"]
    until(live.read, lambda seen: [gpu.error for gpu in seen.snapshot.gpus] == [None, None], seconds=4)


def test_a_driver_that_goes_is_said_and_one_that_comes_back_is_read(machine: Machine, live: Watch) -> None:
    live.wait(60)
    machine.remove_driver()
    away = until(live.read, lambda seen: seen.snapshot.error is not None, seconds=3)
    machine.remove_driver(False)

    assert (away.snapshot.absent, away.stale_since) == (True, None)
    until(live.read, lambda seen: seen.snapshot.error is None, seconds=7)


# --- what happens to the board ---


def test_its_directory_removed_is_made_again_and_what_was_seen_last_stays_in_sight_meanwhile(
    machine: Machine, live: Watch, machine_folder: Path
) -> None:
    before = live.wait(60)
    shutil.rmtree(machine_folder)
    removed = time.time()

    assert live.read().sequence >= before.sequence
    until(live.read, lambda seen: seen.snapshot.time > removed and fresh(seen), seconds=4)
    until(live.read, lambda _: len(collectors(machine)) == 1, seconds=4, every=0.5)


@pytest.mark.parametrize("how", ["link", "another's", "open to others"])
def test_its_directory_replaced_is_refused_left_alone_and_left(
    machine: Machine, live: Watch, machine_folder: Path, how: str
) -> None:
    live.wait(60)
    with spoiled(machine_folder, how):
        with pytest.raises(MonitorError, match="TFGPU_MAGIC_DIR"):
            live.read()
        until(lambda: not collectors(machine), seconds=4, every=0.5)
    until(live.read, fresh, seconds=5)


@pytest.mark.parametrize("name", [SNAPSHOT, LOCK])
@pytest.mark.parametrize("how", ["removed", "replaced", "truncated"])
def test_a_file_removed_replaced_or_truncated_comes_back(
    machine: Machine, live: Watch, machine_folder: Path, name: str, how: str
) -> None:
    live.wait(60)
    with BoardDirectory() as place:
        path = machine_folder / place.full_name(name)
    if how == "truncated":
        os.truncate(path, 0)
    else:
        path.unlink()
    if how == "replaced":
        path.write_bytes(b"not what it was")
    done = time.time()

    until(live.read, lambda seen: seen.snapshot.time > done and fresh(seen), seconds=5)
    until(live.read, lambda _: len(collectors(machine)) == 1, seconds=4, every=0.5)


@root_only
def test_a_full_disk_is_said_and_room_on_it_is_enough(machine: Machine, machine_folder: Path, small_disk: Path) -> None:
    filler = fill(small_disk)
    with Watch(linger=2) as live:
        seen = until(live.read, lambda seen: "No space left" in (seen.snapshot.error or ""), seconds=5)
        filler.unlink()

        assert seen.stale_since is not None
        until(live.read, fresh, seconds=16)
    until(lambda: not collectors(machine), seconds=6, every=0.5)
