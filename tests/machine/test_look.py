"""One look at a simulated machine: right and never an exception, whatever the driver says.

At a driver that hangs or is slow it costs its timeout, leaves no process, and the driver's answer is not lost.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.machine.boards import collectors, fresh, root_only
from tests.processes import kill
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.engine.status import status
from tfgpu_magic.machine import collector_start, see
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.viewers import LOCK
from tfgpu_magic.machine.see import Watch, look, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from tfgpu_magic.ground.snapshot import Snapshot
    from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.usefixtures("own_looks")

FUNCTIONS = [
    "nvmlInitWithFlags",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetName",
    "nvmlDeviceGetAttributes",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
]
CODES = [1, 3, 4, 6, 7, 9, 12, 13, 15, 18, 25, 28, 999]
"""Those that mean something of their own to a reader, and one that does not."""
LONG = 1.5 * SLACK


@pytest.mark.smoke
def test_a_look_sees_gpus_and_who_holds_what(machine: Machine) -> None:
    neighbour = machine.add_neighbour("9GiB@1")

    seen = look(LONG)

    assert (seen.error, seen.notes, seen.simulated) == (None, (), True)
    assert [gpu.uuid for gpu in seen.gpus] == [gpu.uuid for gpu in machine.gpus()]
    assert [gpu.multiprocessors for gpu in seen.gpus] == [32] * 2
    assert seen.gpus[1].used == 9 * GIB
    assert [(row.gpu, row.pid, row.kind, row.held) for row in seen.processes] == [("1", neighbour.pid, "C", 9 * GIB)]


@pytest.mark.parametrize("gpus", ["16GiB,40GiB:mig=2"])
def test_mig_instances_have_the_machines_labels_and_their_own_figures(machine: Machine) -> None:
    machine.add_neighbour("3GiB@1.2")

    seen = look(LONG)

    assert [gpu.label for gpu in seen.gpus] == [gpu.label for gpu in machine.gpus()]
    assert [gpu.used for gpu in seen.gpus][2:] == [0, 3 * GIB]
    assert [gpu.multiprocessors for gpu in seen.gpus][2:] == [16, 16]
    assert [row.gpu for row in seen.processes] == ["1.2"]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_error_of_any_function_is_an_exception(machine: Machine, function: str) -> None:
    machine.add_neighbour("9GiB@1")
    for code in CODES:
        machine.fault(function, code)
        shown = status()  # drawn too, as a user would
        machine.fault(function, 0)
        table, said, drawn = shown.table, repr(shown), shown._repr_html_()

        assert [row.gpu.label for row in table.gpus] == ([] if table.error else ["0", "1"])
        assert all(one in said for one in ([table.error] if table.error else [str(row.gpu.name) for row in table.gpus]))
        assert ("<table" in drawn) == (table.error is None)


@pytest.mark.smoke
def test_without_a_driver_a_look_says_what_was_tried_and_what_to_do(machine: Machine) -> None:
    machine.remove_driver()

    seen = look(LONG)

    assert seen.absent
    assert "Load it (modprobe nvidia)" in (seen.error or "")


def test_threads_may_look_at_once(machine: Machine) -> None:
    seen: list[Snapshot] = []
    threads = [threading.Thread(target=lambda: seen.append(look(10 * SLACK))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [one.error for one in seen] == [None] * 4


@pytest.mark.parametrize(
    ("place", "name", "value", "why"),
    [
        (sys, "executable", "", "no process could be started"),
        (sys, "executable", "/nowhere/python", "no process could be started"),
        (collector_start, "CODE", "import os; os.abort()", "ended without one"),
    ],
)
def test_a_reader_that_does_not_start_or_crashes_is_said(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, value: str, why: str
) -> None:
    monkeypatch.setattr(place, name, value)

    assert why in (look(LONG).error or "")


# --- a driver that hangs or is slow ---


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo"])
def test_a_hang_costs_the_timeout_leaves_no_process_and_a_look_after_it_works(machine: Machine, function: str) -> None:
    before = set(psutil.Process().children())
    machine.hang(function, 3600)
    seen = look(timeout=0.3)
    assert "did not answer within 0.3 s" in (seen.error or "")
    assert "the driver hangs" in (look(LONG).error or "")  # it waits for the same call, until that is given up
    machine.clear_faults()

    assert look(10 * SLACK).error is None
    assert set(psutil.Process().children()) <= before
    until(lambda: not collectors(machine))


def test_a_driver_that_is_slow_to_start_is_let_finish_and_its_answer_is_seen(machine: Machine) -> None:
    machine.hang("nvmlInit", 2.5)

    first = look(0.5)
    until(lambda: machine.calls().get("nvmlInitWithFlags"))
    calls = machine.calls()
    second = look(10 * SLACK)

    assert "still being asked: say it again" in (first.error or "")
    assert (second.error, len(second.gpus)) == (None, 2)
    # The same process: nobody was killed in the driver, and nobody began anew.
    assert machine.calls()["nvmlInitWithFlags"] == calls["nvmlInitWithFlags"]


def test_what_a_slow_driver_said_too_late_is_shown_with_its_age(machine: Machine) -> None:
    machine.hang("nvmlInit", 2.5)
    assert look(0.5).error is not None
    until(lambda: not collector_start.is_pending() and not collectors(machine))

    seen = look(0.5)

    assert (seen.error, len(seen.gpus)) == (None, 2)
    assert seen.notes[-1].endswith("old: the driver is slow to answer.")


def test_who_waits_longer_than_three_seconds_gets_a_word(machine: Machine) -> None:
    said: list[str] = []

    def quick() -> bool:
        """Tell whether nothing is said of a look, as where the machine has nothing else to do."""
        said.clear()
        return snapshot(slow=lambda: said.append("quick")).error is None and not said

    until(quick)
    until(lambda: not collectors(machine))
    machine.hang("nvmlInit", 5)

    assert snapshot(10 * SLACK, slow=lambda: said.append("slow")).error is None
    assert said == ["slow"]


def test_while_one_hangs_for_good_no_other_joins_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(see, "READING_TIMEOUT", 3600.0)
    machine.hang("nvmlDeviceGetMemoryInfo", 3600)
    first = look(0.5)
    calls = until(lambda: machine.calls().get("nvmlDeviceGetMemoryInfo_v2"))
    monkeypatch.setattr(see, "READING_TIMEOUT", -10.0)  # the call has outlived the alarm
    second = look(3600)

    assert "say it again" in (first.error or "")
    assert "an earlier call hangs" in (second.error or "")
    assert machine.calls()["nvmlDeviceGetMemoryInfo_v2"] == calls
    kill(*collectors(machine))


@pytest.mark.usefixtures("machine_folder")
def test_who_only_tries_the_lock_is_no_collector_that_hangs() -> None:
    with BoardDirectory() as place:
        lock = place.open(LOCK, os.O_RDWR | os.O_CREAT)
        os.utime(lock, (0, 0))  # the last collector was there long ago
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Timer(0.2, os.close, (lock,)).start()

        assert look(LONG).error is None


def test_a_driver_that_hangs_for_a_view_is_still_asked(machine: Machine, live: Watch) -> None:
    live.wait()
    machine.hang("nvmlDeviceGetMemoryInfo", 3600)
    until(lambda: live.read().stale_since, seconds=30)

    assert "say it again" in (look(0.5).error or "")
    assert see.is_still_asked()


def test_an_interrupted_look_is_answered_later(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patching:
        patching.setattr(see._Question, "_read_or_ask", interrupt)
        with pytest.raises(KeyboardInterrupt):
            look()
    until(lambda: not collectors(machine))


@root_only
def test_where_nothing_can_be_written_the_gpus_are_seen_all_the_same(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbour = machine.add_neighbour("2GiB@0")
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", tmp_path], check=True)
    try:
        seen = look(10 * SLACK)
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)

    assert seen.error is None
    assert [(row.gpu, row.pid) for row in seen.processes] == [("0", neighbour.pid)]


def test_beside_a_view_no_other_process_opens_the_driver_and_figures_are_of_now(machine: Machine, live: Watch) -> None:
    neighbour = machine.add_neighbour("2GiB@0")
    until(live.read, fresh)
    opened = machine.calls()["nvmlInitWithFlags"]
    for size in range(3, 8):
        neighbour.resize(size * GIB)
        seen = look(10 * SLACK)

        assert seen.gpus[0].used == size * GIB
        assert [row.held for row in seen.processes] == [size * GIB]
    assert snapshot().error is None
    assert machine.calls()["nvmlInitWithFlags"] == opened


def test_one_that_a_line_has_started_ends_with_its_answer(machine: Machine, machine_folder: Path) -> None:
    assert look(10 * SLACK).error is None
    until(lambda: not collectors(machine), seconds=5)
