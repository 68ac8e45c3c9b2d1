"""The collector on a simulated machine: one for all views, replaced when killed, gone when none looks."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.machine.boards import LOOKER, MODULE, collectors, fresh, the_collector
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.child_process import PACKAGES, QUICK
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.machine import collector, collector_start, see
from tfgpu_magic.machine.board import viewers
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.viewers import LOCK
from tfgpu_magic.machine.collector import CollectorConfig
from tfgpu_magic.machine.driver.schedule import WantedIntervals
from tfgpu_magic.machine.see import Watch

if TYPE_CHECKING:
    from tfgpu_magic.simgpu import Machine


# --- what is seen ---


def test_it_imports_nothing_that_a_first_line_would_wait_for_in_vain() -> None:
    code = f"import sys; sys.path.append({PACKAGES!r}); import tfgpu_magic.machine.collector; print(*sys.modules)"
    done = subprocess.run([sys.executable, *QUICK, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())

    assert "tfgpu_magic.machine.driver.nvml" in imported
    assert not imported & {"dataclasses", "decimal", "inspect", "pathlib", "subprocess", "urllib.parse"}


def test_the_first_look_starts_it_and_all_see_who_holds_what_now_and_before(machine: Machine, live: Watch) -> None:
    neighbour = machine.add_neighbour("9GiB@1")
    children = set(psutil.Process().children())
    seen = live.wait(60).snapshot

    assert (seen.error, seen.simulated) == (None, True)
    assert [gpu.used for gpu in seen.gpus] == [0, 9 * GIB]
    assert [(row.gpu, row.pid, row.held) for row in seen.processes] == [("1", neighbour.pid, 9 * GIB)]
    until(live.read, lambda _: set(psutil.Process().children()) <= children, seconds=3)  # it is nobody's child

    neighbour.resize("3GiB")
    until(live.read, lambda seen: seen.snapshot.gpus[1].used == 3 * GIB, seconds=3)
    until(live.read, lambda seen: seen.snapshot.processes[0].held == 3 * GIB, seconds=3)
    assert set(live.history().used[machine.gpus()[1].uuid]) == {9 * GIB, 3 * GIB}


@pytest.mark.parametrize("now", [8 * GIB, 2 * GIB], ids=["taken", "given back"])
def test_processes_are_listed_again_once_memory_has_moved(now: int) -> None:
    one = Gpu(index=0, uuid="GPU-0", name="A100", total=16 * GIB, used=now)

    assert collector._has_changed(Snapshot(time=0.0, gpus=(one,)), {"0": 5 * GIB})
    assert not collector._has_changed(Snapshot(time=0.0, gpus=(one,)), {"0": now})


def test_memory_that_has_just_moved_is_not_somebody_elses(machine: Machine, live: Watch) -> None:
    neighbour = machine.add_neighbour("1GiB@0")
    live.wait(60)
    rests = set()

    def used() -> int:
        seen = live.read().snapshot
        rests.add((seen.gpus[0].used or 0) - sum(row.held or 0 for row in seen.processes))
        return seen.gpus[0].used or 0

    for size in range(2, 8):
        neighbour.resize(size * GIB)
        until(used, (size * GIB).__eq__)

    assert rests == {0}


def test_nvml_is_called_as_often_for_twenty_as_for_one(machine: Machine, live: Watch) -> None:
    def calls(lookers: list[Watch]) -> list[float]:
        """Return how often each function is called in a reading; a pause between two looks makes that less."""

        def now() -> tuple[dict[str, int], int]:
            for one in lookers:
                one.read()
            return machine.calls(), live.read().sequence

        first, before = live.read().sequence, machine.calls()
        after, last = until(now, lambda seen: seen[1] >= first + 5)
        names = (name for name in after if "MemoryInfo" in name or "Compute" in name)
        return [(after[name] - before.get(name, 0)) / (last - first) for name in names]

    live.wait(60)
    one = calls([live])
    lookers = [Watch() for _ in range(20)]
    twenty = calls(lookers)
    for board_reader in lookers:
        board_reader.close()

    assert sum(one) > 0
    assert all(b <= a + 1.5 for a, b in zip(one, twenty, strict=True))  # of two GPUs
    until(lambda: len(collectors(machine)) == 1)


# --- one, and only as long as somebody looks ---


def test_of_racing_starters_one_wins_and_the_others_leave_quietly(machine: Machine, machine_folder: Path) -> None:
    with BoardDirectory() as place:
        viewers.want(place, WantedIntervals())
    command = [sys.executable, "-m", MODULE]
    racing = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    until(lambda: sum(process.poll() is None for process in racing), lambda left: left == 1)
    codes = sorted(str(process.poll()) for process in racing)
    with Watch() as live:
        until(live.read, fresh, seconds=5)
    found = [process.pid for process in collectors(machine)]
    for process in racing:
        process.kill()
    answers, said = zip(*[process.communicate() for process in racing], strict=True)

    assert codes == ["0", "0", "0", "None"]
    assert found == [process.pid for process in racing if process.returncode == -signal.SIGKILL]
    assert said == (b"",) * 4
    assert sorted(answer == b"taken" for answer in answers) == [False, True, True, True]


def test_it_is_detached_from_whoever_started_it(machine: Machine, machine_folder: Path) -> None:
    with (machine_folder.parent / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        lasting = LOOKER.replace("linger=3", "linger=3600")  # it is looked at when nobody looks any more
        code = f"import os; os.environ['SECRET'] = 's'; os.chdir('/tmp')\n{lasting}"
        board_reader = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
        )
        assert board_reader.stdout
        board_reader.stdout.readline()
    collector = the_collector(machine)
    os.kill(board_reader.pid, signal.SIGKILL)
    board_reader.communicate()

    def opened() -> set[str]:
        """Return what it has open; it reads files all the time, and what it was left stays open."""
        paths = [fd.readlink() for fd in Path(f"/proc/{collector.pid}/fd").iterdir()]
        return {str(path) for path in paths if not path.is_relative_to(machine_folder)}

    until(opened, {"/dev/null", str(machine.path)}.issuperset, despite=FileNotFoundError)
    assert os.getsid(collector.pid) not in (os.getsid(0), os.getsid(os.getpid()))
    assert (collector.cwd(), collector.ppid() == board_reader.pid) == ("/", False)
    assert "SECRET" not in collector.environ()
    assert collector.is_running()


def test_it_leaves_after_the_last_look_and_not_before(here: BoardDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lock = [1000.0], here.open(LOCK, os.O_RDWR | os.O_CREAT)
    viewers.want(here, WantedIntervals())

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] < 1100:
            viewers.want(here, WantedIntervals())  # somebody looks

    monkeypatch.setattr(collector, "read", lambda *_: Snapshot(time=1e9, gpus=(Gpu(0),), listed_at=1e9))
    monkeypatch.setattr(
        collector,
        "time",
        SimpleNamespace(monotonic=lambda: clock[0], time=time.time, time_ns=time.time_ns, sleep=sleep),
    )
    collector._run(here, lock, CollectorConfig(linger=30.0))
    os.close(lock)

    assert 1129 < clock[0] < 1132


def test_one_at_which_nobody_looks_leaves(machine: Machine, machine_folder: Path) -> None:
    with Watch(linger=1) as live:
        live.wait(60)
        the_collector(machine)
    until(lambda: not collectors(machine), seconds=6, every=0.5)


def test_killed_it_is_replaced_within_three_seconds(machine: Machine, live: Watch) -> None:
    before = live.wait(60).sequence
    collector = the_collector(machine)
    collector.kill()
    killed = time.time()
    seen = until(live.read, lambda seen: seen.snapshot.time > killed and fresh(seen), seconds=3)

    assert seen.sequence > before
    assert collector not in collectors(machine)
    assert live.history().times[0] < killed


def test_one_that_cannot_live_is_started_more_and_more_rarely(
    machine_folder: Path, live: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, starts = [1000.0], list[float]()
    monkeypatch.setattr(collector_start, "Start", lambda *_: starts.append(clock[0]))
    monkeypatch.setattr(see, "CHECK_EVERY", 0.0)
    monkeypatch.setattr(see, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    while clock[0] < 1060:
        live.read()
        clock[0] += 0.25

    assert [after - before for before, after in itertools.pairwise(starts)] == [1, 2, 4, 8, 15, 15]


@pytest.mark.parametrize("program", ["", "/nowhere/python"])
def test_no_python_to_start_is_said(machine_folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "executable", program)

    with Watch() as live, pytest.raises(MonitorError, match="no collector could be started"):
        live.read()


def test_readings_are_as_rare_as_all_who_look_want_them_and_one_who_wants_more_has_more(
    machine: Machine, machine_folder: Path
) -> None:
    with Watch(every=300) as rare:
        first = until(rare.read, lambda seen: seen.sequence > 0 and seen.stale_since is None, seconds=20)
        collector = the_collector(machine)
        wakes = collector.num_ctx_switches().voluntary
        until(lambda: collector.num_ctx_switches().voluntary >= wakes + 4)
        seen = rare.read()
        with Watch() as often:
            until(often.read, lambda now: now.sequence >= first.sequence + 2, seconds=20)

    assert seen.snapshot is first.snapshot
    assert (seen.stale_since, round(seen.every)) == (None, 300)
