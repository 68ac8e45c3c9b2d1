"""The stream and the snapshot: what a page is sent, how often, and how it is told what happens."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter import Server, serving
from tests.machine.boards import board_of, pass_readings, wanted
from tests.server.conftest import ENABLED, Serve
from tests.server.streaming import connect, end, fresh, received, rows, streaming
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.machine.board.directory import BoardDirectory
from tfgpu_magic.machine.board.snapshot_file import SnapshotReader
from tfgpu_magic.machine.see import UNWATCHED_LISTS_EVERY
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.tell.page_json import VERSION


def snapshot(server: Server) -> dict[str, Any]:
    with server.open("tfgpu-magic/snapshot") as answer:
        message: dict[str, Any] = json.load(answer)
    return message


@pytest.mark.smoke
def test_the_first_to_ask_gets_the_first_reading(machine: Machine, serve: Serve) -> None:
    server, asked = serve(), time.time()
    message = snapshot(server)

    assert message["state"]["time"] > asked
    assert (message["version"], message["type"]) == (VERSION, "full")
    assert fresh(message["state"])
    assert message["state"]["simulated"] is True
    assert {label: gpu["total"] for label, gpu in message["state"]["gpus"].items()} == {"0": 16 * GIB, "1": 16 * GIB}
    assert {gpu.uuid for gpu in machine.gpus()} == {gpu["uuid"] for gpu in message["state"]["gpus"].values()}


def test_a_stream_begins_with_all_and_goes_on_with_what_changes(machine: Machine, server: Server) -> None:
    neighbour = machine.add_neighbour("3GiB@1")
    with streaming(server) as stream:
        stream.until(lambda state: [row.get("pid") for row in rows(state)] == [neighbour.pid], 4)
        neighbour.resize("5GiB")
        stream.until(lambda state: rows(state)[0]["held"] == 5 * GIB, 4)
        answer = snapshot(server)
        stream.until(lambda _: stream.messages[-1]["sequence"] >= answer["sequence"], 3)
        neighbour.stop()
        stream.until(lambda state: not rows(state) and state["gpus"]["1"]["used"] == 0, 4)
    kinds = [message["type"] for message in stream.messages]
    at = [message["sequence"] for message in stream.messages].index(answer["sequence"])
    again = type(stream)()
    for message in stream.messages[: at + 1]:
        again.take(json.dumps(message))

    assert kinds == ["full", *["tick"] * (len(kinds) - 1)]
    assert again.state == answer["state"]  # the ticks make what a snapshot is
    assert answer["history"]["used"].keys() == {gpu.uuid for gpu in machine.gpus()}
    assert len(answer["history"]["times"]) > 1


def test_a_quiet_machine_still_ticks_every_second_with_the_time(server: Server) -> None:
    def last() -> list[dict[str, Any]]:
        return [message["patch"] for message in stream.messages[-8:] if message["type"] == "tick"]

    def quiet(patches: list[dict[str, Any]]) -> bool:  # a busy machine's collector may be late, and then it is not
        return len(patches) == 8 and {tuple(patch) for patch in patches} == {("time",)}

    with streaming(server) as stream:
        patches = until(last, quiet)

    assert patches[-1]["time"] - patches[0]["time"] > 0.7 * (len(patches) - 1)


def test_the_floor_is_the_administrators_and_another_base_url_is_fine(machine: Machine, serve: Serve) -> None:
    server = serve("--TfGpuServer.floor=2.5", base="/user/me/")
    with streaming(server) as stream, board_of(machine, server.home / "board") as board:
        stream.until(lambda state: state["gpus"], 20)
        assert wanted(board).memory == 2.5  # readings
    assert stream.messages[0]["every"] == 2.5  # and messages


def test_a_setting_that_cannot_be_used_or_was_removed_is_told_by_name_and_the_server_goes_on(serve: Serve) -> None:
    server = serve("--TfGpuServer.floor=5s", "--TfGpuServer.metrics=False")
    log = server.log.read_text()

    assert snapshot(server)["version"]
    assert "c.TfGpuServer.floor = '5s' is NOT in force, and 1.0 is. " in log
    assert "`metrics`, from c.TfGpuServer, is no setting any more. A server exports no figures. " in log


def test_what_a_client_says_is_ignored_and_what_is_long_ends_it(server: Server) -> None:
    def talk(text: str) -> list[bool]:
        connection = connect(server)
        connection.send(text)
        said = [bool(received(connection))]
        while len(said) < 3 and said[-1]:
            said.append(bool(received(connection)))
        end(connection)
        return said

    for text in ('{"type":"full"}', '{"processes":0}', "[" * 1024, "{", '"processes"'):
        assert talk(text) == [True, True, True]
    assert talk("x" * 100_000)[-1] is False
    assert server.call("status")


def test_a_page_whose_panel_is_closed_has_memory_each_second_and_processes_once_it_opens(tmp_path: Path) -> None:
    environment = {"TFGPU_MAGIC_DIR": str(tmp_path / "board")}
    with (
        Machine.create("1x16GiB") as machine,
        serving(machine, tmp_path, options=[ENABLED], environment=environment) as server,
        streaming(server, wait=30) as page,
        board_of(machine, tmp_path / "board") as board,
    ):
        page.say('{"processes":false}')
        until(lambda: wanted(board) == (1.0, UNWATCHED_LISTS_EVERY))
        neighbour = machine.add_neighbour("4GiB@0")
        page.until(lambda state: state["gpus"]["0"]["used"] == 4 * GIB, 4)
        before, begun = asked(machine, board)
        pass_readings(board, 8)
        after, now = asked(machine, board)
        page.say('{"processes":true}')
        until(lambda: wanted(board) == (1.0, 2.0))
        page.until(lambda state: [row.get("pid") for row in rows(state)] == [neighbour.pid], 4)

    assert after - before <= 2 + (now - begun) / UNWATCHED_LISTS_EVERY


def asked(machine: Machine, board: BoardDirectory) -> tuple[int, float]:
    """Return how often the driver was asked for a list of processes, and when it was last read."""
    counts = (count for name, count in machine.calls().items() if "GetComputeRunning" in name)
    return sum(counts), SnapshotReader(board).read().snapshot.time
