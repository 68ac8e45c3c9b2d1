"""What goes wrong with the driver, the collector and the board: clients are told, the server goes on, and all heals."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.jupyter import Server
from tests.monitor.boards import collectors
from tests.server.streaming import Stream, fresh, streaming
from tests.slack import SLACK
from tfgpu_magic.simgpu import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534


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
    machine.hang("nvmlDeviceGetMemoryInfo", 60)
    hung = time.monotonic()
    stale = stream.until(lambda state: "stale" in state, 3.5)
    begun = time.monotonic()
    server.call("status")
    with server.open("tfgpu-magic/snapshot") as answer:
        assert b'"stale":' in answer.read()

    assert time.monotonic() - begun < 0.5 * SLACK
    assert abs(stale["stale"] - time.time()) < 5 * SLACK
    assert stale["gpus"]["0"]["total"]  # the last figures, and since when they are old
    quiet = len(stream.messages)
    stream.until(lambda _: len(stream.messages) >= quiet + 2, 4)  # it is told that we live, though nothing is new
    assert time.monotonic() - hung < 9 * SLACK
    for collector in collectors(machine):  # its alarm would end it, a minute later
        collector.kill()


def test_a_collector_that_was_killed_is_replaced(machine: Machine, stream: Stream) -> None:
    for collector in collectors(machine):
        collector.kill()
    killed = time.time()

    stream.until(lambda state: state["time"] > killed and fresh(state), 4)


def test_a_driver_that_goes_is_said_and_one_that_comes_back_is_read(machine: Machine, stream: Stream) -> None:
    machine.remove_driver()
    away = stream.until(lambda state: "error" in state, 4)
    machine.remove_driver(False)

    assert away["absent"] is True
    assert away["gpus"] == {}
    stream.until(fresh, 8)


def test_a_lost_gpu_says_so_and_comes_back(machine: Machine, stream: Stream) -> None:
    machine.lose(0)
    lost = stream.until(lambda state: "error" in state["gpus"]["0"], 4)
    machine.restore(0)

    assert "used" not in lost["gpus"]["0"]
    assert "error" not in lost["gpus"]["1"]
    stream.until(lambda state: "error" not in state["gpus"]["0"], 5)


def test_a_board_that_was_removed_is_made_again(board: Path, stream: Stream) -> None:
    shutil.rmtree(board)
    removed = time.time()

    stream.until(lambda state: state["time"] > removed and fresh(state), 5)


@pytest.mark.parametrize("how", ["link", "another's", "open to others"])
def test_a_board_that_is_not_ours_alone_is_refused_and_said(board: Path, stream: Stream, how: str) -> None:
    before, theirs = board.parent / "before", board.parent / "theirs"
    if how == "link":
        board.rename(before)
        theirs.mkdir(mode=0o700)
        board.symlink_to(theirs)
    elif how == "open to others":
        board.chmod(0o777)
    elif os.geteuid() == 0:
        os.chown(board, NOBODY, NOBODY)
    else:
        pytest.skip("only root can give a directory away")
    try:
        said = stream.until(lambda state: "error" in state, 3)
        if how == "link":
            assert not list(theirs.iterdir())
    finally:
        if how == "link":
            board.unlink()
            before.rename(board)
            theirs.rmdir()
        elif how == "another's":
            os.chown(board, os.geteuid(), os.getegid())
        else:
            board.chmod(0o700)

    assert "TFGPU_MAGIC_DIR" in said["error"]
    assert board.parent.joinpath("server.log").read_text().count(f"the GPUs cannot be looked at: {said['error']}") == 1
    assert (said["gpus"], said["rows"]) == ({}, {})
    stream.until(fresh, 6)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
def test_a_full_disk_is_said_or_stale_and_room_heals_it(machine: Machine, board: Path, stream: Stream) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", board], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        filler = board / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        stream.until(lambda state: "error" in state or "stale" in state, 6)
        filler.unlink()
        stream.until(fresh, 20)
    finally:
        subprocess.run(["umount", "--lazy", board], check=True)
    for collector in collectors(machine):  # the one on the disk that is no more
        collector.kill()
