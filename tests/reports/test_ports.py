"""A port that must be the service's, as people met it: nobody takes it while the service is away."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.units import UNITS
from tests.processes import PATIENCE
from tfgpu_magic.doctor.checks import board
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.simgpu import Machine

AS_SYSTEMD = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.executable, [sys.executable, "-m", "tfgpu_magic", "exporter"])
"""


@contextlib.contextmanager
def exporter(machine: Machine, port: socket.socket) -> Iterator[str]:
    """Start it as systemd does, with a socket that listens already; give the line that it prints."""
    command = [sys.executable, "-c", AS_SYSTEMD, str(port.fileno())]
    with machine.popen(command, text=True, stdout=subprocess.PIPE, pass_fds=[port.fileno()]) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def test_machine_6_nobody_takes_the_exporters_port_while_it_is_away_and_who_asks_meanwhile_is_answered() -> None:
    """Another user listens there while it is restarted, and Prometheus reads figures that somebody has made up."""
    with Machine.create("1x16GiB") as machine, socket.create_server(("127.0.0.1", 0), backlog=8) as port:
        url = f"http://127.0.0.1:{port.getsockname()[1]}/metrics"
        with exporter(machine, port) as said:
            first = scraped(url)
        with pytest.raises(OSError, match="in use"):
            socket.create_server(port.getsockname())
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.append(scraped(url)))
        asking.start()
        with exporter(machine, port):
            asking.join(PATIENCE)

    assert said == url
    assert "tfgpu_magic_up" in first
    assert ["tfgpu_magic_up" in answer for answer in answers] == [True]


def test_machine_6_the_port_is_systemds_and_comes_with_the_service() -> None:
    service, unit = ((UNITS / f"tfgpu-exporter.{kind}").read_text() for kind in ("service", "socket"))

    assert "Requires=tfgpu-exporter.socket" in service
    assert "Also=tfgpu-exporter.socket" in service
    assert "ListenStream=127.0.0.1:9836" in unit


@pytest.mark.parametrize("bound", [True, False])
def test_machine_6_the_doctor_finds_an_exporter_whose_port_anybody_can_take(tmp_path: Path, *, bound: bool) -> None:
    system = tmp_path / "etc/systemd/system"
    for wants, unit in [("multi-user.target", "service"), *([("sockets.target", "socket")] if bound else [])]:
        (system / f"{wants}.wants").mkdir(parents=True)
        (system / f"{wants}.wants" / f"tfgpu-exporter.{unit}").touch()
    (tmp_path / "sys/fs/cgroup/system.slice/tfgpu-exporter.service").mkdir(parents=True)

    names = [one.name for one in board.board(ThisMachine(tmp_path))]
    assert ("board.port" in names) is not bound
