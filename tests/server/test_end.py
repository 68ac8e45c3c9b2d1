"""Clients that do not read, and a server that ends: nothing grows, and nothing is left."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request

import psutil

from tests.jupyter import Server
from tests.machine.boards import board_of, collectors, pass_readings
from tests.processes import NOBODYS_PID
from tests.server.conftest import Serve
from tests.server.streaming import connect, end, fresh, rows, streaming
from tests.sizes import MIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.machine.board import viewers
from tfgpu_magic.simgpu import Machine

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


def test_what_a_client_does_not_read_is_not_kept_for_it_and_holds_up_nobody(machine: Machine, serve: Serve) -> None:
    narrow = serve(config=NARROW)
    crowd = [machine.add_row(NOBODYS_PID - number, 0, MIB) for number in range(CROWD)]  # whosever these pids are
    with streaming(narrow) as stream:
        stream.until(lambda state: len(rows(state)) >= CROWD, 6)
        deaf = connect(narrow, sockopt=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)])  # it reads when it is asked to
        for number in range(6):
            for one in crowd:
                one.resize((2 + number) * MIB)
            sent = len(stream.messages)
            stream.until(lambda _, sent=sent: len(stream.messages) > sent, 4)  # type: ignore[misc]
        missed = stream.messages[-1]["sequence"]
        got = [json.loads(deaf.recv()) for _ in range(3)]
        end(deaf)
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
            before = viewers.newest_view(board)  # whoever looks sets it, twice a second
            pass_readings(board)
            return viewers.newest_view(board) == before

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
