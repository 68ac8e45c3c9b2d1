"""A GPU that is not used may sleep though a view is open, and is not woken to be looked at."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.machine.boards import collectors, fresh, snapshot
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.snapshot_file import SNAPSHOT
from tfgpu_magic.machine.driver import schedule
from tfgpu_magic.machine.driver.schedule import ASLEEP, IDLE_FOR, SLEEP_TIMEOUT, DriverSleep
from tfgpu_magic.machine.see import Watch

if TYPE_CHECKING:
    from pathlib import Path

    from tfgpu_magic.simgpu import Machine

NOBODY_THERE = snapshot(0)
COLLECTOR = """
import sys
from pathlib import Path
from tfgpu_magic.machine import collector
from tfgpu_magic.machine.board import viewers
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.driver import schedule
viewers.want(BoardDirectory(), schedule.WantedIntervals())  # somebody looks
schedule._PCI, schedule.IDLE_FOR, schedule.SLEEP_TIMEOUT = Path(sys.argv[1]), 0.5, 600.0
collector.main(patience=3.0)
"""


def device(pci: Path, number: int, *, control: str = "auto", vendor: str = "0x10de", kind: str = "0x030200") -> Path:
    """Make a device as Linux shows it; return the file that says whether it sleeps."""
    folder = pci / f"0000:0{number}:00.0"
    (folder / "power").mkdir(parents=True)
    for name, value in (("vendor", vendor), ("class", kind), ("power/control", control)):
        (folder / name).write_text(value + "\n")
    status = folder / "power" / "runtime_status"
    status.write_text("active\n")
    return status


@pytest.fixture
def pci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(schedule, "_PCI", tmp_path / "pci")
    (tmp_path / "pci").mkdir()
    return tmp_path / "pci"


GPU, NO_SLEEP = {"control": "auto"}, {"control": "on"}
GRAPHICS = {"vendor": "0x8086", "control": "on"}  # the processor's own
SOUND = {"kind": "0x040300", "control": "on"}  # the GPU's


@pytest.mark.parametrize(
    ("devices", "processes", "begins"),
    [
        ([GPU, GRAPHICS, SOUND], [0, 0, 0], [False, False, True]),
        ([GPU], [0, 1, 0], [False, False, False]),  # somebody uses it
        ([], [0, 0, 0], [False, False, False]),
        ([NO_SLEEP], [0, 0, 0], [False, False, False]),
        ([GPU, NO_SLEEP], [0, 0, 0], [False, False, False]),
    ],
)
def test_nvml_is_let_go_of_when_nobody_uses_a_gpu_that_may_sleep(
    pci: Path, devices: list[dict[str, str]], processes: list[int], begins: list[bool]
) -> None:
    for number, one in enumerate(devices):
        device(pci, number, **one)
    driver_sleep, times = DriverSleep(), (0.0, IDLE_FOR - 1, IDLE_FOR)

    seen = [driver_sleep.should_begin(snapshot(count), now) for count, now in zip(processes, times, strict=True)]
    assert (seen, driver_sleep.is_asleep()) == (begins, False)


def test_a_gpu_that_stays_awake_is_left_alone_once(pci: Path) -> None:
    device(pci, 1)
    one = DriverSleep()
    begun = [one.should_begin(NOBODY_THERE, now) for now in (0.0, IDLE_FOR)]
    waiting = [one.should_go_on(IDLE_FOR + 1), one.should_go_on(IDLE_FOR + SLEEP_TIMEOUT)]

    assert (begun, waiting) == ([False, True], [True, False])
    assert not any(one.should_begin(NOBODY_THERE, now) for now in (100.0, 200.0))


def test_a_laptops_gpu_falls_asleep_under_an_open_page_and_is_seen_when_it_wakes(
    machine: Machine, machine_folder: Path, tmp_path: Path
) -> None:
    status = device(tmp_path / "pci", 1)
    with subprocess.Popen([sys.executable, "-c", COLLECTOR, str(tmp_path / "pci")]) as process, Watch() as live:
        until(lambda: list(machine_folder.glob("snapshot-*")), seconds=20)  # it is the one, and not live's
        until(live.read, fresh, seconds=20)
        until(live.read, lambda _: machine.calls().get("nvmlShutdown", 0) > 0, seconds=20)
        # Nobody reads, and what was read is of its time.
        until(live.read, lambda seen: seen.stale_since is not None, seconds=20)
        status.write_text("suspended\n")
        asleep = until(live.read, lambda seen: seen.snapshot.error == ASLEEP, seconds=20)
        before = machine.calls()
        beats = set[int]()
        with BoardDirectory() as place:

            def beaten() -> int:
                beats.add(place.touch_time(SNAPSHOT))
                return len(beats)

            until(beaten, lambda count: count > 6)  # meanwhile an awake driver is asked
        assert machine.calls() == before
        machine.add_neighbour("1GiB@0")
        status.write_text("active\n")
        woken = until(live.read, lambda seen: bool(seen.snapshot.processes), seconds=20)
        until(lambda: len(collectors(machine)) <= 1)
        process.kill()

    assert (asleep.snapshot.absent, woken.snapshot.error) == (False, None)
    until(lambda: not collectors(machine), seconds=10, every=0.5)


def test_a_driver_that_hangs_when_it_is_let_go_of_keeps_no_collector(
    machine: Machine, machine_folder: Path, tmp_path: Path
) -> None:
    device(tmp_path / "pci", 1)
    hangs = (
        "import time; from tfgpu_magic.machine.driver import nvml; "
        f"nvml.NvmlReader.close = lambda _: time.sleep(300)\n{COLLECTOR}"
    )
    with subprocess.Popen([sys.executable, "-c", hangs, str(tmp_path / "pci")]) as process:
        try:
            ended = process.wait(25 * SLACK)  # it would linger for 30
        finally:
            process.kill()

    assert ended == -signal.SIGALRM
