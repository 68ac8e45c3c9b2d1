"""The machine's collector, as a real process on a simulated machine, and what viewers do with it and without it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.units import judged
from tests.machine.boards import collectors, fresh
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.lab import counters, service
from tfgpu_magic.machine.board import machine_board
from tfgpu_magic.machine.owners.pids import start_time
from tfgpu_magic.machine.see import Watch, snapshot
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]
SAID = r"Since [-\d]{10} [\d:]{5}, your processes have held (\S+) GiB-hours of GPU memory, (\S+) without use\."
WATCHED = """
import sys
opened = set()
def note(event, args):
    if event == "open" and isinstance(args[0], str):
        opened.add(args[0])
    elif event in ("os.listdir", "os.scandir"):
        opened.add(f"{args[0]}/")
sys.addaudithook(note)
from tfgpu_magic.lab import service
try:
    service.serve(service.CONFIG._replace(linger=4.0))
finally:
    print(*sorted(opened), sep="\\n")
"""
"""A service that ends after a while, and prints which files it has opened."""
LATER = """
import json
from tfgpu_magic.lab.service import serve
from tfgpu_magic.ground.snapshot import Snapshot
from tfgpu_magic.machine.board.snapshot_file import Published

to_json, to_bytes = Snapshot.to_json, Published.to_bytes

def with_more(snapshot):
    fields = json.loads(to_json(snapshot))
    fields["later"] = fields["gpus"]["later"] = ["what a later version tells"] * len(snapshot.gpus)
    fields["processes"]["later"] = fields["processes"]["pid"]
    return json.dumps(fields)

def longer(published):
    head, *rest = to_bytes(published).split(b"\\n")
    return b"\\n".join([json.dumps({**json.loads(head), "later": "more"}).encode(), *rest])

Snapshot.to_json, Published.to_bytes = with_more, longer
serve()
"""
"""The service of a later version of this package, whose board has more of everything."""


@contextlib.contextmanager
def serving(machine: Machine, *how: str) -> Iterator[subprocess.Popen[str]]:
    """Run the service until the block ends; it has read the GPUs."""
    command = [sys.executable, *(how or ("-m", "tfgpu_magic", "collect"))]
    with machine.popen(command, text=True, stderr=subprocess.PIPE) as running:
        until(lambda: (seen := machine_board.read_published()) and fresh(seen))
        try:
            yield running
        finally:
            running.kill()
            running.communicate()


@pytest.fixture
def running(machine: Machine) -> Iterator[subprocess.Popen[str]]:
    with serving(machine) as running:
        yield running


def from_service(live: Watch) -> bool:
    """Tell whether a viewer reads the machine's board, and it is true."""
    return fresh(live.read()) and live._machine.read() is not None


@pytest.mark.usefixtures("running")
def test_where_it_serves_no_users_collector_starts_and_nothing_is_written_for_one(
    machine: Machine, tmp_path: Path
) -> None:
    neighbour = machine.add_neighbour("2GiB@0")
    with Watch() as live:
        until(lambda: from_service(live))
        rows = until(lambda: live.read().snapshot.processes)

        assert [(row.pid, row.uid, row.began) for row in rows] == [
            (neighbour.pid, os.getuid(), start_time(neighbour.pid))
        ]
        assert until(lambda: live.history().times)
        assert [row.pid for row in snapshot().processes] == [neighbour.pid]
    assert collectors(machine) == []
    assert [path.name for path in (tmp_path / "own").iterdir() if path.name.startswith(("snapshot", "lock"))] == []


def test_killed_away_and_back_everybody_sees_what_is_true(machine: Machine) -> None:
    neighbour = machine.add_neighbour("2GiB@0")
    with Watch(linger=3) as live:
        with serving(machine):
            until(lambda: from_service(live))
        until(lambda: fresh(live.read()) and collectors(machine), seconds=10)
        assert live._machine.read() is None
        neighbour.resize("3GiB")
        with serving(machine, "-c", LATER):
            until(lambda: from_service(live))
            until(lambda: not collectors(machine), every=0.5)

            assert from_service(live)
            assert live.read().snapshot.processes[0].held == 3 * GIB


def test_while_it_hangs_that_is_said_and_nobody_asks_the_driver_beside_it(
    machine: Machine, running: subprocess.Popen[str]
) -> None:
    with Watch() as live:
        until(lambda: from_service(live))
        running.send_signal(signal.SIGSTOP)
        stale = until(live.read, lambda seen: seen.stale_since is not None)
        still = until(live.read, lambda seen: (seen.age or 0.0) > 5.0)
        beside = collectors(machine)
        running.send_signal(signal.SIGCONT)
        until(lambda: from_service(live))

    assert stale.snapshot.gpus
    assert (still.stale_since, beside) == (stale.stale_since, [])


@pytest.mark.usefixtures("running")
def test_a_second_one_ends_and_says_why(machine: Machine) -> None:
    command = [sys.executable, "-m", "tfgpu_magic", "collect"]
    second = machine.run(command, capture_output=True, text=True)

    assert (second.returncode, second.stderr) == (2, "tfgpu: another collector serves this machine.\n")


@pytest.mark.parametrize(
    ("user", "why"),
    [
        (0, "this is user 0. Run it as a user of its own"),
        (1000, "this is user 1000. Run it as a user of its own"),
        (991, "install -d -o tfgpu /run/tfgpu_magic-of-nobody"),  # root has made no place for it
    ],
)
def test_neither_root_nor_a_person_is_the_service_and_it_needs_a_place(
    user: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    monkeypatch.setattr(machine_board, "PLACE", Path("/run/tfgpu_magic-of-nobody"))
    monkeypatch.setattr(os, "geteuid", lambda: user)

    with pytest.raises(MonitorError, match=why):
        service.serve()


def test_tfgpu_status_says_what_its_user_has_held_while_the_service_counts_it(machine: Machine) -> None:
    def status(*more: str) -> str:
        command = [sys.executable, "-m", "tfgpu_magic", "status", *more]
        return str(machine.run(command, capture_output=True, text=True).stdout)

    machine.add_neighbour("8GiB@0")
    before = status()
    with serving(machine):
        until(lambda: counters.own_totals())
        counted, hours = status(), json.loads(status("--json"))["hours"]
    until(lambda: machine_board.read_published() is None)

    assert (found := re.search(SAID, counted))
    assert found.groups() == ("<0.1", "0.0")
    assert hours["held_byte_seconds"] >= 8 * GIB * 0.1
    assert (hours["held_unused_byte_seconds"], hours["unknown_process_seconds"]) == (0, 0)
    for text in (before, status()):
        assert "GiB-hours" not in text
    assert "hours" not in json.loads(status("--json"))


def test_of_processes_it_opens_three_files_and_of_users_none(machine: Machine) -> None:
    neighbour = machine.add_neighbour("2GiB@0")
    done = machine.run([sys.executable, "-c", WATCHED], capture_output=True, text=True)
    opened = [path for path in done.stdout.splitlines() if path.startswith("/proc/")]
    ours = re.compile(r"/proc/(self/(comm|maps|cgroup|mountinfo)|sys/kernel/random/boot_id|\d+/(stat|status|cgroup))")

    assert {f"/proc/{neighbour.pid}/{name}" for name in ("stat", "status", "cgroup")} <= set(opened)
    assert [path for path in opened if not ours.fullmatch(path)] == []
    assert [path for path in done.stdout.splitlines() if "own" in Path(path).parts] == []


def test_the_unit_restarts_it_always_and_before_users_have_collectors() -> None:
    unit = (ROOT / "systemd" / "tfgpu-collector.service").read_text()
    pause = re.search(r"(?m)^RestartSec=(\d+)$", unit)

    assert pause
    assert int(pause[1]) < machine_board.GIVEN_UP_AFTER - 1.0  # it must start, and may have beaten a second ago
    assert "StartLimitIntervalSec=0" in unit.partition("[Service]")[0].splitlines()


@pytest.mark.parametrize("name", ["tfgpu-collector.service", "tfgpu-exporter.service"])
def test_a_unit_is_one_that_systemd_takes_and_finds_safe(name: str, tmp_path: Path) -> None:
    assert judged(name, tmp_path) < 2
