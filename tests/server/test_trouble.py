"""What goes wrong with the driver, the collector and the board: clients are told, the server goes on, and all heals."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.jupyter import Server
from tests.machine.boards import spoiled, the_collector
from tests.server.streaming import Stream, fresh, streaming
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def board(server: Server) -> Path:
    return server.home / "board"


@pytest.fixture
def stream(machine: Machine, server: Server) -> Iterator[Stream]:
    """A stream that was fresh once; after the test it is again."""
    with streaming(server) as stream:
        stream.until(fresh, 10)
        yield stream
        machine.clear_faults()
        stream.until(fresh, 10)
        assert server.process.poll() is None
        assert "Traceback" not in server.log.read_text()


def test_a_hang_of_nvml_is_stale_and_hinders_no_page(machine: Machine, server: Server, stream: Stream) -> None:
    machine.hang("nvmlDeviceGetMemoryInfo", 3600)
    hangs, before = the_collector(machine), stream.state["time"]
    stale = stream.until(lambda state: "stale" in state, 3.5)
    server.call("status")
    with server.open("tfgpu-magic/snapshot") as answer:
        assert b'"stale":' in answer.read()

    assert before <= stale["stale"] < time.time()
    assert stale["gpus"]["0"]["total"]  # the last figures, and since when they are old
    quiet = len(stream.messages)
    stream.until(lambda _: len(stream.messages) >= quiet + 2, 4)  # it is told that we live, though nothing is new
    assert hangs.is_running()  # a minute later its alarm would end it: nobody has waited for that
    hangs.kill()


def test_a_board_that_is_not_ours_alone_is_refused_and_said(board: Path, stream: Stream) -> None:
    with spoiled(board, "open to others"):
        said = stream.until(lambda state: "error" in state, 3)

    assert "TFGPU_MAGIC_DIR" in said["error"]
    assert board.parent.joinpath("server.log").read_text().count(f"the GPUs cannot be looked at: {said['error']}") == 1
    assert (said["gpus"], said["rows"]) == ({}, {})
    stream.until(fresh, 6)
