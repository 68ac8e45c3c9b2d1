"""Clients that do not read, and a server that ends: nothing grows, and nothing is left."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import urllib.request
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.jupyter import Server
from tests.machine.boards import board_of, collectors, pass_readings
from tests.processes import NOBODYS_PID
from tests.server.conftest import Serve
from tests.server.streaming import fresh, rows, streaming
from tests.sizes import MIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.machine.board import viewers
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

CROWD = 400
NARROW = """
import socket
from tornado.tcpserver import TCPServer

connected = TCPServer._handle_connection

def narrowed(server, connection, address):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    connected(server, connection, address)

TCPServer._handle_connection = narrowed
"""
"""Lets the system keep little of what a client does not read: else it takes megabytes until the server has to."""


@pytest.fixture
def narrow(serve: Serve) -> Server:
    return serve(config=NARROW)


@pytest.fixture
def deaf(narrow: Server) -> Iterator[socket.socket]:
    """A client that reads nothing until it is asked to."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.connect(("127.0.0.1", narrow.port))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET /tfgpu-magic/stream HTTP/1.1", f"Host: 127.0.0.1:{narrow.port}", "Upgrade: websocket",
            "Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}",
            f"Authorization: token {narrow.token}", "", "",
        ]  # fmt: skip
        client.sendall("\r\n".join(lines).encode())
        yield client


def read(client: socket.socket, count: int) -> list[dict[str, Any]]:
    """Read so many messages (RFC 6455, section 5.2: a server does not mask them)."""
    client.settimeout(10 * SLACK)
    with client.makefile("rb") as file:
        while file.readline().strip():
            pass  # the headers
        messages = []
        for _ in range(count):
            first, length = file.read(2)
            assert first == 0x81
            if length > 125:
                length = int.from_bytes(file.read(2 if length == 126 else 8), "big")
            messages.append(json.loads(file.read(length)))
    return messages


def test_what_a_client_does_not_read_is_not_kept_for_it_and_holds_up_nobody(
    machine: Machine, narrow: Server, request: pytest.FixtureRequest
) -> None:
    crowd = [machine.add_row(NOBODYS_PID - number, 0, MIB) for number in range(CROWD)]  # whosever these pids are
    with streaming(narrow) as stream:
        stream.until(lambda state: len(rows(state)) >= CROWD, 6)
        deaf = request.getfixturevalue("deaf")
        for number in range(6):
            for one in crowd:
                one.resize((2 + number) * MIB)
            sent = len(stream.messages)
            stream.until(lambda _, sent=sent: len(stream.messages) > sent, 4)  # type: ignore[misc]
        missed = stream.messages[-1]["sequence"]
        got = read(deaf, 3)
    for one in crowd:
        one.stop()

    assert got[0]["type"] == "full"
    assert got[2]["sequence"] >= missed  # what came between is in no buffer


def test_when_all_have_left_nobody_looks_and_a_server_that_ends_ends_its_streams_and_leaves_nothing(
    machine: Machine, serve: Serve
) -> None:
    server = serve()
    with streaming(server) as stream:
        stream.until(fresh, 5)
    with board_of(machine, server.home / "board") as board:

        def nobody_looks() -> bool:
            before = viewers.newest(board)  # whoever looks sets it, twice a second
            pass_readings(board)
            return viewers.newest(board) == before

        until(nobody_looks)
    with streaming(server) as stream:
        stream.until(fresh, 5)
        urllib.request.urlopen(f"http://{server.base}metrics?token={server.token}", timeout=240).close()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(10 * SLACK)
        until(lambda: stream.closed, seconds=3)

    assert code in (0, -signal.SIGTERM)
    assert "Traceback" not in server.log.read_text()

    def left() -> set[psutil.Process]:  # but for the collector, which leaves by itself
        return {process for process in psutil.process_iter() if _is_of(process, server)} - set(collectors(machine))

    until(left, lambda found: not found)


def _is_of(process: psutil.Process, server: Server) -> bool:
    try:
        return process.environ().get("TFGPU_MAGIC_DIR") == str(server.home / "board")
    except psutil.Error:
        return False
