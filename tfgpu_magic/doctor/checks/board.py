"""The board that all views share: its directory, and whether the collector that writes to it is alive."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tfgpu_magic.doctor.finding import outcome
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.ground.message import Message, Severity
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.machine_board import MachineBoard, folder
from tfgpu_magic.machine.board.snapshot_file import SnapshotReader
from tfgpu_magic.machine.owners.pids import start_time

DIRECTORY = outcome("board.directory", Severity.GOOD, "It is in {directory}, which is yours alone.")
ELSEWHERE = outcome("board.elsewhere", Severity.WARNING, "It is in {directory}. {why}")
UNUSABLE = outcome("board.unusable", Severity.FAULT, "No view can work: {why}")
HANGS = outcome(
    "board.hangs",
    Severity.FAULT,
    "A collector is there, and has given no sign for {age} s: all views are stale.",
    "If it hangs in the driver, this does not answer either; else it is ended by itself after a minute:\n  nvidia-smi",
)
MACHINE = outcome(
    "board.machine",
    Severity.GOOD,
    "The views of all users read {directory}. The service that writes to it read the GPUs {age} s ago.",
)
MACHINE_HANGS = outcome(
    "board.machine-hangs",
    Severity.FAULT,
    "The service that reads the GPUs for all users has given no sign for {age} s: all views are stale.",
    "See whether the driver answers, and restart the service:\n  nvidia-smi\n  sudo systemctl restart tfgpu-collector",
)
MACHINE_UNREAD = outcome(
    "board.machine-unread",
    Severity.WARNING,
    "There is a board for all users, which is not read: {why}",
    "Your views have a collector of their own. An administrator can set it right: see docs/administrators.md.",
)
PRIVATE_TMP = outcome(
    "board.private-tmp",
    Severity.WARNING,
    "Your process {pid} ({name}) has a /tmp of its own: it and the processes here do not see each other's notebooks "
    "and limits.",
    "That is what `PrivateTmp` and `isolate_tmp` do. To have all of them in one place, set this for all of them:\n"
    "  export TFGPU_MAGIC_DIR=~/.tfgpu_magic",
)
AWAY = outcome(
    "board.service-away",
    Severity.WARNING,
    "The service {unit} is to run on this machine, and does not.",
    "An administrator can see why:\n  systemctl status {unit}",
)
PORT = outcome(
    "board.port",
    Severity.WARNING,
    "While tfgpu-exporter is restarted, any user can take its port and tell Prometheus made-up figures.",
    "An administrator can have systemd keep the port: copy its two units anew, and run\n"
    "  systemctl daemon-reload\n  systemctl stop tfgpu-exporter\n  systemctl enable --now tfgpu-exporter",
)

UNITS = "tfgpu-collector.service", "tfgpu-exporter.service"
_ENABLED, _RUNNING = "etc/systemd/system/multi-user.target.wants", "sys/fs/cgroup/system.slice"
"""Where systemd has a link to each unit that is to run, and a cgroup of each one that runs."""
_SOCKET = "etc/systemd/system/sockets.target.wants/tfgpu-exporter.socket"


def board(machine: ThisMachine) -> Iterator[Message]:
    """Yield where the board is, who writes it, and which service is missing; no collector is started."""
    enabled, running = machine.root / _ENABLED, machine.root / _RUNNING
    for unit in UNITS if running.exists() else ():
        if os.path.lexists(enabled / unit) and not (running / unit).exists():
            yield AWAY(unit=unit)
    if running.exists() and os.path.lexists(enabled / UNITS[1]) and not os.path.lexists(machine.root / _SOCKET):
        yield PORT()
    try:
        with BoardDirectory() as place:
            directory = str(place.path)
            yield (
                ELSEWHERE(directory=directory, why=place.passed_over)
                if place.passed_over
                else DIRECTORY(directory=directory)
            )
            yield from _private_directories(place.path)
            with contextlib.closing(MachineBoard()) as machines:
                seen = machines.read()
            if seen is not None:
                yield (
                    MACHINE(directory=str(folder()), age=None if seen.age is None else round(seen.age, 1))
                    if seen.stale_since is None
                    else MACHINE_HANGS(age=round(time.time() - seen.stale_since))
                )
                return
            if machines.why_not:
                yield MACHINE_UNREAD(why=machines.why_not)
            reader = SnapshotReader(place)
            own, left = reader.read(), reader.published
            if own.stale_since is not None and left is not None and start_time(left.pid) == left.began:
                yield HANGS(age=round(time.time() - own.stale_since))
    except MonitorError as error:
        yield UNUSABLE(why=str(error))


def _private_directories(directory: Path) -> Iterator[Message]:
    """Yield the processes of this user that find another directory there: they have a /tmp of their own."""
    here = directory.stat()
    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            other, process = Path(f"/proc/{pid}/root{directory}").stat(), Path("/proc", str(pid))
            in_container = not os.path.samestat((process / "ns/pid").stat(), Path("/proc/self/ns/pid").stat())
            if process.stat().st_uid == os.geteuid() and not (os.path.samestat(here, other) or in_container):
                yield PRIVATE_TMP(pid=pid, name=(process / "comm").read_text().strip())
                return
