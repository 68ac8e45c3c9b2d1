"""The machine's collector, as a real process on a simulated machine, and what viewers do with it and without it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.lab.units import judged
from tests.lab.users import as_user, root_only
from tests.monitor.boards import collectors, fresh
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.lab import counters, service
from tfgpu_magic.monitor.board import machine_board
from tfgpu_magic.monitor.live import Live, last
from tfgpu_magic.monitor.owners.pids import began
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]
ANN = 12345
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
    service.serve(service.DUTY._replace(linger=4.0))
finally:
    print(*sorted(opened), sep="\\n")
"""
"""A service that ends after a while, and prints which files it has opened."""


def start(machine: Machine) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tfgpu_magic", "collect"]
    return machine.popen(command, text=True, stderr=subprocess.PIPE)


def serve(machine: Machine) -> subprocess.Popen[str]:
    """Start the service, and wait until it has read the GPUs."""
    running = start(machine)
    until(lambda: (seen := machine_board.published()) and fresh(seen))
    return running


def from_service(live: Live) -> bool:
    """Tell whether a viewer reads the machine's board, and it is true."""
    return fresh(live.look()) and live._machine.look() is not None


def test_where_it_serves_no_users_collector_starts_and_nothing_is_written_for_one(
    machine: Machine, tmp_path: Path
) -> None:
    neighbour = machine.add_neighbour("2GiB@0")
    running = serve(machine)
    with Live() as live:
        until(lambda: from_service(live))
        rows = until(lambda: live.look().snapshot.processes)
        history = until(lambda: live.history().times)

        assert [(row.pid, row.uid, row.began) for row in rows] == [(neighbour.pid, os.getuid(), began(neighbour.pid))]
        assert history
        assert (told := last())
        assert [row.pid for row in told.processes] == [neighbour.pid]
    running.kill()
    running.communicate()

    assert collectors(machine) == []
    assert [path.name for path in (tmp_path / "own").iterdir() if path.name.startswith(("board", "lock"))] == []


def test_killed_away_and_back_everybody_sees_what_is_true(machine: Machine) -> None:
    running = serve(machine)
    with Live(linger=3) as live:
        until(lambda: from_service(live))
        running.kill()
        running.communicate()
        until(lambda: fresh(live.look()) and collectors(machine), seconds=10)
        alone = live._machine.look()
        again = start(machine)
        until(lambda: from_service(live))
        until(lambda: not collectors(machine), every=0.5)

        assert alone is None
        assert until(lambda: from_service(live))
        again.kill()
        again.communicate()


def test_while_it_hangs_that_is_said_and_nobody_asks_the_driver_beside_it(machine: Machine) -> None:
    running = serve(machine)
    with Live() as live:
        until(lambda: from_service(live))
        running.send_signal(signal.SIGSTOP)
        stale = until(live.look, lambda seen: seen.stale_since is not None)
        still = until(live.look, lambda seen: (seen.age or 0.0) > 5.0)
        beside = collectors(machine)
        running.send_signal(signal.SIGCONT)
        until(lambda: from_service(live))

        assert stale.snapshot.gpus
        assert (still.stale_since, beside) == (stale.stale_since, [])
        running.kill()
        running.communicate()


def test_a_second_one_ends_and_says_why(machine: Machine) -> None:
    running = serve(machine)
    with Live() as live:
        until(lambda: from_service(live))
    second = start(machine)
    said = second.communicate()[1]
    running.kill()
    running.communicate()

    assert (second.returncode, said) == (2, "tfgpu: another collector serves this machine.\n")


@pytest.mark.parametrize("user", [0, 1000])
def test_neither_root_nor_a_person_is_the_service(user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: user)

    with pytest.raises(MonitorError, match=f"this is user {user}. Run it as a user of its own"):
        service.serve()


def test_where_root_has_made_no_place_it_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    monkeypatch.setattr(machine_board, "PLACE", Path("/run/tfgpu_magic-of-nobody"))
    monkeypatch.setattr(os, "geteuid", lambda: 991)

    with pytest.raises(MonitorError, match="install -d -o tfgpu /run/tfgpu_magic-of-nobody"):
        service.serve()


@root_only
def test_users_read_what_it_writes_and_stop_it_by_nothing(machine: Machine) -> None:
    def look() -> tuple[bool, list[str]]:
        with tempfile.TemporaryDirectory(dir="/tmp") as own, Live() as live:
            os.environ["TFGPU_MAGIC_DIR"] = f"{own}/board"
            seen = until(live.look, fresh)
            with contextlib.suppress(PermissionError):
                os.kill(running.pid, signal.SIGKILL)
            return bool(seen.snapshot.gpus), [path.name for path in Path(own, "board").iterdir()]

    running = serve(machine)
    seen = [as_user(ANN + number, look) for number in range(3)]
    with Live() as live:
        until(lambda: from_service(live))
    running.kill()
    running.communicate()

    assert seen == [(True, [])] * 3


def test_tfgpu_status_says_what_its_user_has_held_while_the_service_counts_it(machine: Machine) -> None:
    def status(*more: str) -> str:
        command = [sys.executable, "-m", "tfgpu_magic", "status", *more]
        return str(machine.run(command, capture_output=True, text=True).stdout)

    machine.add_neighbour("8GiB@0")
    before = status()
    running = serve(machine)
    until(lambda: counters.own())
    counted, hours = status(), json.loads(status("--json"))["hours"]
    running.kill()
    running.communicate()
    until(lambda: machine_board.published() is None)

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


def test_the_unit_is_one_that_systemd_takes_and_finds_safe(tmp_path: Path) -> None:
    assert judged("tfgpu-collector.service", tmp_path) < 2
