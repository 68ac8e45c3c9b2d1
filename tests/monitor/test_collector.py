"""The collector on a simulated machine: one for all who look, replaced when killed, gone when nobody looks."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor import live as living
from tfgpu_magic.monitor.board import BOARD, LOCK
from tfgpu_magic.monitor.collector import Schedule
from tfgpu_magic.monitor.live import Live
from tfgpu_magic.monitor.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgpu_magic.monitor.board import Look
    from tfgpu_magic.simgpu import Machine

GIB = 2**30
NOBODY = 65534
PATIENCE = 2.0
MODULE = "tfgpu_magic.monitor.collector"
LOOKER = """
import select, sys
from tfgpu_magic.monitor.live import Live
with Live(linger=3) as live:
    print(live.wait(20).message.sequence, flush=True)
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        live.look()
"""
"""Looks until its standard input ends."""
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away or mount a disk")


@pytest.fixture
def gpus() -> str:
    return "2x16GiB"


@pytest.fixture
def folder(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The board's directory; whatever collector the test has left is ended."""
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    yield tmp_path / "board"
    for process in collectors(machine):
        with contextlib.suppress(psutil.Error):
            process.kill()


@pytest.fixture
def live(folder: Path) -> Iterator[Live]:
    with Live(linger=3, patience=PATIENCE) as live:
        yield live


def collectors(machine: Machine) -> list[psutil.Process]:
    """The collectors of this machine, and those that are to become one."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            ours = process.environ().get("TFGPU_SIMGPU") == str(machine.path)
            if ours and any(MODULE in word for word in process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def until(live: Live, promise: Callable[[Look], bool], seconds: float) -> Look:
    """Look ten times a second until it is so, or fail when the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        seen = live.look()
        if promise(seen):
            return seen
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {seen}")


def fresh(seen: Look) -> bool:
    return seen.stale_since is None and seen.age is not None and seen.age < 2


def gone(machine: Machine, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while collectors(machine) and time.monotonic() < end:
        time.sleep(0.1)
    return not collectors(machine)


# --- what is seen ---


def test_the_first_look_starts_it_and_all_see_who_holds_what(machine: Machine, live: Live) -> None:
    neighbour = machine.add_neighbour("9GiB@1")
    seen = live.wait().snapshot

    assert (seen.error, seen.simulated) == (None, True)
    assert [gpu.used for gpu in seen.gpus] == [0, 9 * GIB]
    assert [(row.gpu, row.pid, row.held) for row in seen.processes] == [("1", neighbour.pid, 9 * GIB)]


def test_memory_follows_in_a_second_or_two_and_the_past_is_kept(machine: Machine, live: Live) -> None:
    neighbour = machine.add_neighbour("9GiB@1")
    live.wait()
    neighbour.resize("3GiB")
    until(live, lambda seen: seen.snapshot.gpus[1].used == 3 * GIB, 3)
    until(live, lambda seen: seen.snapshot.processes[0].held == 3 * GIB, 3)
    past = live.history().used

    assert set(past[machine.gpus()[1].uuid]) == {9 * GIB, 3 * GIB}


def test_nvml_is_called_as_often_for_twenty_as_for_one(machine: Machine, live: Live) -> None:
    def calls(lookers: list[Live]) -> list[int]:
        """What is called between three readings."""
        start, before = live.wait().message.sequence, machine.calls()
        until(live, lambda seen: seen.message.sequence >= start + 3 and bool([one.look() for one in lookers]), 10)
        after = machine.calls()
        return [after[name] - before.get(name, 0) for name in after if "MemoryInfo" in name or "Compute" in name]

    live.wait()
    one = calls([live])
    lookers = [Live() for _ in range(20)]
    twenty = calls(lookers)
    for looker in lookers:
        looker.close()

    assert sum(one) > 0
    assert all(abs(a - b) <= 2 * 2 for a, b in zip(one, twenty, strict=True))  # a reading more or less, of two GPUs
    assert len(collectors(machine)) == 1


def test_the_process_that_looks_imports_no_pynvml(folder: Path) -> None:
    code = (
        "import sys; from tfgpu_magic.monitor.live import Live; Live(linger=1).wait(); print('pynvml' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout == "False\n"


# --- one, and only as long as somebody looks ---


def test_of_racing_starters_one_wins_and_the_others_leave_quietly(machine: Machine, folder: Path) -> None:
    racing = [subprocess.Popen([sys.executable, "-m", MODULE], stderr=subprocess.PIPE) for _ in range(4)]
    end = time.monotonic() + 20
    while sum(process.poll() is None for process in racing) > 1 and time.monotonic() < end:
        time.sleep(0.05)
    codes = sorted(str(process.poll()) for process in racing)
    with Live() as live:
        until(live, fresh, 5)
    found = [process.pid for process in collectors(machine)]
    for process in racing:
        process.kill()
    said = [process.communicate()[1] for process in racing]

    assert codes == ["0", "0", "0", "None"]
    assert found == [process.pid for process in racing if process.returncode == -signal.SIGKILL]
    assert said == [b""] * 4


def test_many_that_begin_to_look_at_once_start_one(machine: Machine, folder: Path) -> None:
    command = [sys.executable, "-c", LOOKER]
    lookers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for looker in lookers:
        assert looker.stdout
        assert int(looker.stdout.readline()) > 0
    found = collectors(machine)
    for looker in lookers:
        looker.communicate("", timeout=10)

    assert len(found) == 1


def test_it_is_detached_from_whoever_started_it(machine: Machine, folder: Path) -> None:
    with (folder.parent / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        code = f"import os; os.environ['SECRET'] = 's'; os.chdir('/tmp')\n{LOOKER}"
        looker = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
        )
        assert looker.stdout
        looker.stdout.readline()
    (collector,) = collectors(machine)
    os.kill(looker.pid, signal.SIGKILL)
    looker.communicate()

    opened = {
        Path(f"/proc/{collector.pid}/fd/{fd.name}").readlink() for fd in Path(f"/proc/{collector.pid}/fd").iterdir()
    }
    ours = {path for path in opened if not path.is_relative_to(folder)}
    assert {str(path) for path in ours} <= {"/dev/null", str(machine.path)}
    assert os.getsid(collector.pid) not in (os.getsid(0), os.getsid(os.getpid()))
    assert (collector.cwd(), collector.ppid() == looker.pid) == ("/", False)
    assert "SECRET" not in collector.environ()
    assert collector.is_running()


def test_whoever_starts_it_keeps_no_child(live: Live) -> None:
    before = set(psutil.Process().children())
    live.wait()
    until(live, lambda _: set(psutil.Process().children()) <= before, 3)


def test_it_leaves_after_the_last_look_and_not_before(machine: Machine, folder: Path) -> None:
    with Live(linger=1) as live:
        live.wait()
        first = collectors(machine)
        for _ in range(25):
            live.look()
            time.sleep(0.1)
        assert collectors(machine) == first
    assert gone(machine, 6)


def test_killed_it_is_replaced_within_three_seconds(machine: Machine, live: Live) -> None:
    before = live.wait().message.sequence
    (collector,) = collectors(machine)
    collector.kill()
    killed = time.time()
    seen = until(live, lambda seen: seen.snapshot.time > killed and fresh(seen), 3)

    assert seen.message.sequence > before
    assert collector not in collectors(machine)
    assert live.history().times[0] < killed


def test_one_that_cannot_live_is_started_more_and_more_rarely(
    folder: Path, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[float] = []
    monkeypatch.setattr(living, "_start", lambda _: starts.append(time.monotonic()))
    monkeypatch.setattr(living, "CHECK_EVERY", 0.0)
    monkeypatch.setattr(living, "_FIRST", 0.02)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        live.look()

    assert 3 <= len(starts) <= 7
    assert starts[-1] - starts[-2] > starts[2] - starts[1]


@pytest.mark.parametrize("program", ["", "/nowhere/python"])
def test_no_python_to_start_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "executable", program)

    with Live() as live, pytest.raises(MonitorError, match="no collector could be started"):
        live.look()


# --- what the driver does ---


def test_a_hang_is_stale_within_three_seconds_and_over_when_nvml_answers(machine: Machine, live: Live) -> None:
    live.wait()
    machine.hang("nvmlDeviceGetMemoryInfo", 60)
    hung = time.time()
    seen = until(live, lambda seen: seen.stale_since is not None, 3)
    machine.clear_faults()

    assert abs((seen.stale_since or 0) - hung) < 1.5
    assert seen.snapshot.error is None  # the last figures, and since when they are old
    until(live, fresh, PATIENCE + 5)  # the one that hangs gives up, and another starts
    assert len(collectors(machine)) == 1


def test_while_one_hangs_looks_take_no_time_and_no_other_joins_it(machine: Machine, folder: Path) -> None:
    machine.hang("nvmlInit", 60)
    with Live(patience=60) as live:
        until(live, lambda seen: seen.stale_since is not None, 4)
        slowest = 0.0
        end = time.monotonic() + 2
        while time.monotonic() < end:
            start = time.monotonic()
            seen = live.look()
            slowest = max(slowest, time.monotonic() - start)
            time.sleep(0.01)

        assert seen.stale_since is not None
        assert (seen.age, seen.snapshot.error) == (None, "The GPUs are being asked for the first time.")
        assert slowest < 0.5
        assert len(collectors(machine)) == 1


def test_a_lost_gpu_says_so_others_live_on_and_it_comes_back(machine: Machine, live: Live) -> None:
    machine.add_neighbour("9GiB@1")
    live.wait()
    machine.lose(0)
    lost = until(live, lambda seen: seen.snapshot.gpus[0].lost, 3).snapshot
    machine.restore(0)

    assert lost.gpus[1].used == 9 * GIB
    assert [row.gpu for row in lost.processes] == ["1"]
    until(live, lambda seen: [gpu.error for gpu in seen.snapshot.gpus] == [None, None], 4)


def test_a_driver_that_goes_is_said_and_one_that_comes_back_is_read(machine: Machine, live: Live) -> None:
    live.wait()
    machine.remove_driver()
    away = until(live, lambda seen: seen.snapshot.error is not None, 3)
    machine.remove_driver(False)

    assert (away.snapshot.absent, away.stale_since) == (True, None)
    until(live, lambda seen: seen.snapshot.error is None, 7)


# --- what happens to the board ---


def test_its_directory_removed_is_made_again(machine: Machine, live: Live, folder: Path) -> None:
    live.wait()
    shutil.rmtree(folder)
    removed = time.time()

    until(live, lambda seen: seen.snapshot.time > removed and fresh(seen), 4)
    until(live, lambda _: len(collectors(machine)) == 1, 4)


def test_what_was_seen_last_stays_in_sight_meanwhile(live: Live, folder: Path) -> None:
    before = live.wait().message
    shutil.rmtree(folder)

    assert live.look().message is before


@pytest.mark.parametrize("how", ["link", "another's", "open to others"])
def test_its_directory_replaced_is_refused_left_alone_and_left(
    machine: Machine, live: Live, folder: Path, how: str
) -> None:
    live.wait()
    theirs = folder.parent / "theirs"
    if how == "link":
        folder.rename(folder.parent / "before")
        theirs.mkdir(mode=0o700)
        folder.symlink_to(theirs)
    elif how == "open to others":
        folder.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    else:
        pytest.skip("only root can give a directory away")

    with pytest.raises(MonitorError, match="TFGPU_MAGIC_DIR"):
        live.look()
    assert gone(machine, 4)
    assert how != "link" or not list(theirs.iterdir())

    if how == "link":
        folder.unlink()
        (folder.parent / "before").rename(folder)
    elif how == "another's":
        os.chown(folder, 0, 0)
    else:
        folder.chmod(0o700)
    until(live, fresh, 5)


@pytest.mark.parametrize("name", [BOARD, LOCK])
@pytest.mark.parametrize("how", ["removed", "replaced", "truncated"])
def test_a_file_removed_replaced_or_truncated_comes_back(
    machine: Machine, live: Live, folder: Path, name: str, how: str
) -> None:
    live.wait()
    with Place() as place:
        path = folder / place.name(name)
    if how == "truncated":
        os.truncate(path, 0)
    else:
        path.unlink()
    if how == "replaced":
        path.write_bytes(b"not what it was")
    done = time.time()

    until(live, lambda seen: seen.snapshot.time > done and fresh(seen), 5)
    until(live, lambda _: len(collectors(machine)) == 1, 4)


@root_only
def test_a_full_disk_is_said_and_room_on_it_is_enough(machine: Machine, folder: Path) -> None:
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", folder], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        filler = folder / "filler"
        with Live(linger=2) as live, filler.open("wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            with pytest.raises(MonitorError, match="No space left"):
                live.look()
            os.truncate(filler, filler.stat().st_size - 8192)  # enough for the lock, and not for a board
            seen = until(live, lambda seen: "No space left" in (seen.snapshot.error or ""), 5)
            filler.unlink()
            os.truncate(file.fileno(), 0)

            assert seen.stale_since is not None
            until(live, fresh, 16)
        assert gone(machine, 6)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


# --- how often NVML is asked ---


def spent(cost: dict[str, float], *, seconds: float = 7200) -> tuple[float, dict[str, int]]:
    """Simulate a schedule: what part of the time readings take that cost so much, and how many there are."""
    schedule, now, busy = Schedule(), 0.0, 0.0
    count = dict.fromkeys(cost, 0)
    while now < seconds:
        kind = schedule.kind(now)
        if kind is not None:
            schedule.done(kind, now, cost[kind])
            now, busy = now + cost[kind], busy + cost[kind]
            count[kind] += 1
        now = max(now, schedule.next())
    return busy / now, count


def test_memory_is_read_every_second_lists_every_two_and_graphics_every_ten() -> None:
    _, count = spent({"memory": 0, "lists": 0, "graphics": 0}, seconds=1000)

    assert count == {"memory": 500, "lists": 400, "graphics": 100}  # a dearer reading is a cheaper one too


def test_a_driver_that_is_slow_to_start_is_not_held_against_it() -> None:
    schedule = Schedule()
    schedule.done("graphics", 0.0, 20.0, opening=True)
    schedule.done("lists", 20.0, 0.001)

    assert (schedule.kind(21.0), schedule.kind(22.0)) == ("graphics", "graphics")


def test_a_driver_that_is_slow_to_fail_is_asked_the_more_rarely() -> None:
    schedule, pauses = Schedule(), []
    for cost in (0.001, 0.001, 0.001, 0.001, 0.001, 1.0):
        schedule.done("graphics", 0.0, cost, opening=True, failed=True)
        pauses.append(schedule.next())

    assert pauses == [1, 2, 4, 5, 5, pytest.approx(50)]


def test_a_single_slow_reading_is_paid_for_bit_by_bit() -> None:
    schedule = Schedule()
    for number in range(5):
        schedule.done("lists", 10.0 * number, 3.0 if number == 4 else 0.001)
    schedule.done("graphics", 110.0, 0.001)

    assert [schedule.kind(at) for at in (114.0, 116.0)] == ["memory", "lists"]  # 75 s, and not 300


@pytest.mark.parametrize("lists", [0.001, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("memory", [0.0001, 0.004, 0.05, 0.2])
def test_never_more_than_two_percent_of_the_time_is_spent_in_nvml(memory: float, lists: float) -> None:
    part, count = spent({"memory": memory, "lists": memory + lists, "graphics": memory + 1.1 * lists})

    assert round(part, 4) <= 0.02  # which is so in the long run: these are two hours
    assert min(count.values()) > 0
