"""Clients that do not read, and a server that ends: nothing grows, and nothing is left."""

from __future__ import annotations

import base64
import os
import signal
import socket
import time
import urllib.request
from itertools import pairwise
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.jupyter import Server
from tests.monitor.test_collector import collectors
from tests.server.conftest import Serve
from tests.server.streaming import fresh, rows, streaming
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 2**20
DEAF, CROWD = 60, 400


@pytest.fixture
def deaf(server: Server) -> Iterator[list[socket.socket]]:
    """Clients that never read a byte of what they are sent, with as little room for it as there can be."""
    clients = []
    for _ in range(DEAF):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.connect(("127.0.0.1", server.port))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET /tfgpu-magic/stream HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "Upgrade: websocket",
            "Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}",
            f"Authorization: token {server.token}", "", "",
        ]  # fmt: skip
        client.sendall("\r\n".join(lines).encode())
        clients.append(client)
    yield clients
    for client in clients:
        client.close()


def test_clients_that_do_not_read_neither_fill_the_memory_nor_hold_up_others(
    machine: Machine, server: Server, deaf: list[socket.socket]
) -> None:
    crowd = [machine.add_row(30_000 + number, 0, MIB) for number in range(CROWD)]
    times, most, before = [], 0, 0
    with streaming(server) as stream:
        stream.until(lambda state: len(rows(state)) >= CROWD, 6)
        for number in range(24):
            for one in crowd:
                one.resize((2 + number) * MIB)
            sent = len(stream.messages)
            stream.until(lambda _, sent=sent: len(stream.messages) > sent, 4)  # type: ignore[misc]
            used = psutil.Process(server.process.pid).memory_info().rss
            before = used if number == 12 else before  # what is kept of the past is kept by now
            most = max(most, used)
        times = [at for at, *_ in stream.messages]
        sizes = [size for *_, size in stream.messages[-12:]]
    for one in crowd:
        one.stop()

    assert sum(sizes) * len(deaf) > 10 * MIB  # what would pile up
    assert most - before < 4 * MIB
    assert max(later - earlier for earlier, later in pairwise(times[1:])) < 2.5


def test_when_all_have_left_nobody_looks(machine: Machine, serve: Serve) -> None:
    server = serve()
    with streaming(server) as stream:
        stream.until(fresh, 5)
    process = psutil.Process(server.process.pid)
    time.sleep(1)
    before = process.cpu_times()
    looked = max(path.stat().st_mtime for path in (server.home / "board").glob("lock*"))
    time.sleep(2)

    assert max(path.stat().st_mtime for path in (server.home / "board").glob("lock*")) == looked
    assert sum(process.cpu_times()[:2]) - sum(before[:2]) < 0.2


def test_a_server_that_ends_ends_its_streams_and_leaves_nothing(machine: Machine, serve: Serve) -> None:
    server = serve()
    with streaming(server) as stream:
        stream.until(fresh, 5)
        urllib.request.urlopen(f"http://{server.base}metrics?token={server.token}", timeout=10).close()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(10)
        end = time.monotonic() + 3
        while not stream.closed and time.monotonic() < end:
            time.sleep(0.05)

    assert stream.closed
    assert code in (0, -signal.SIGTERM)
    assert "Traceback" not in server.log.read_text()
    left = [process for process in psutil.process_iter() if _is_of(process, server)]
    assert left == [process for process in collectors(machine) if process in left]  # which leaves by itself


def _is_of(process: psutil.Process, server: Server) -> bool:
    try:
        return process.environ().get("TFGPU_MAGIC_DIR") == str(server.home / "board")
    except psutil.Error:
        return False
