"""Whatever keeps the helper from being asked is one error, which all who ask know how to take."""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.board import starting
from tfgpu_magic.monitor.board.directory import BoardDirectory
from tfgpu_magic.parking import client
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.client import ComingBack
from tfgpu_magic.parking.messages import SOCKET, ParkOutcome


@pytest.fixture(autouse=True)
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))


def test_without_descriptors_the_helper_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socket", none_left)

    with pytest.raises(MonitorError, match=r"cannot be asked \(Too many open files\)"):
        client.unpark(os.getpid())


@pytest.mark.processes
def test_a_process_is_started_also_where_no_thread_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def at_the_end(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", at_the_end)
    made = tmp_path / "made"

    with BoardDirectory() as place:
        starting.launch("import sys; open(sys.argv[1], 'w').close()", (str(made),), place)

    assert made.exists()


@pytest.mark.parametrize(
    ("found", "back"),
    [
        ((), True),
        ((why.CHILDREN((7,)), why.HELD_UNKNOWN("0")), True),  # it is listed, whatever else speaks against parking it
        ((why.HOLDS_NOTHING(),), False),
        ((why.UNLISTED(),), False),
        ((why.DECLINED("cuInit", 803),), False),
        ((why.NO_DRIVER("hung"),), False),
    ],
)
def test_one_of_which_nothing_is_recorded_is_back_only_where_the_driver_lists_it(
    monkeypatch: pytest.MonkeyPatch, found: tuple[why.Refusal, ...], back: bool
) -> None:
    monkeypatch.setattr(client, "check", lambda *_, **__: ParkOutcome(refusals=found))

    assert client.is_back(ParkOutcome(refusals=(why.NOT_PARKED(),))) is back


def test_a_helper_that_says_what_is_not_known_here_is_an_error_too() -> None:
    """After an update, say, while the helper of before still runs."""
    with BoardDirectory() as place, socket.socket(socket.AF_UNIX) as helper:
        helper.bind(place.short_path(SOCKET))
        helper.listen()

        def answers() -> None:
            connection, _ = helper.accept()
            with connection:
                connection.recv(2**16)
                connection.sendall(b'{"progress":{"step":"sings"}}\n')

        thread = threading.Thread(target=answers)
        thread.start()
        with pytest.raises(MonitorError, match="of another version"):
            client.unpark(os.getpid())
        thread.join()


def test_whoever_waits_for_a_return_hears_of_an_error_that_has_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: Any) -> ParkOutcome:
        raise NotImplementedError

    monkeypatch.setattr(client, "unpark", fails)

    with pytest.raises(MonitorError, match="cannot be asked: NotImplementedError"):
        ComingBack().outcome(None)
