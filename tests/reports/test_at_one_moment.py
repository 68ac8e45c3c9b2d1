"""Two notebooks that ask for memory at the same moment, or one after the other at once: the second is warned."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import pytest

from tests.magic.shell import shown
from tests.processes import PATIENCE, program
from tfgpu_magic.claims import ledger
from tfgpu_magic.engine import enforcement, other_processes
from tfgpu_magic.simgpu import Machine

POINTS = {"deciding": (other_processes, "_beside"), "applying": (enforcement, "enforce")}
"""Where a notebook is held: it has read what others claim, and has not decided; or it has, and has not applied it."""
WAITING = ledger, "_lock"
"""Where the other one is, for a moment: it has read the GPUs, and goes for the ledger's lock."""


class HeldNotebook:
    """A notebook in a process of its own, which can be held at a point until it is let go on."""

    def __init__(self, pid: int, cells: Connection, holds: Connection) -> None:
        self.pid, self._cells, self._holds = pid, cells, holds
        self._thread = ThreadPoolExecutor(1)

    def run(self, cell: str, hold: str = "") -> Future[str]:
        """Begin a cell; return what will be seen of it."""

        def ask() -> str:
            self._cells.send((cell, hold))
            said: str = self._cells.recv()
            return said

        return self._thread.submit(ask)

    def wait_until_held(self) -> None:
        assert self._holds.poll(PATIENCE)
        assert self._holds.recv() == "held"

    def go_on(self) -> None:
        self._holds.send("go on")


def _serve(address: str) -> int:
    """Run cells that come from a connection, in a thread; the other connection is that of the point."""
    cells, holds = Client(address), Client(address)
    ledger.LOCK_TIMEOUT = PATIENCE  # a busy machine may hold the one that decides for longer than three seconds
    shown("%load_ext tfgpu_magic")

    def run() -> None:
        while True:
            cell, hold = cells.recv()
            if hold:
                _hold_once(*POINTS.get(hold, WAITING), holds)
            cells.send(shown(cell)[0])

    threading.Thread(target=run, daemon=True).start()
    return os.getpid()


def _hold_once(owner: Any, name: str, holds: Connection) -> None:
    """Have the next call of a function wait."""
    function: Callable[..., Any] = getattr(owner, name)

    def held(*args: Any) -> Any:
        setattr(owner, name, function)
        holds.send("held")
        holds.recv()
        return function(*args)

    setattr(owner, name, held)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine.create("1x16GiB") as machine:
        yield machine


@contextmanager
def notebook(machine: Machine, folder: Path, board: Path) -> Iterator[HeldNotebook]:
    """Give a notebook that shares a board with others."""
    with ExitStack() as stack:
        listener = stack.enter_context(Listener(str(folder)))
        env = {"TFGPU_MAGIC_DIR": str(board)}
        with ThreadPoolExecutor(1) as thread:
            both = thread.submit(lambda: (listener.accept(), listener.accept()))
            one = stack.enter_context(program(machine, _serve, str(folder), env=env, imported=False))
            cells, holds = both.result()
        yield HeldNotebook(one.answer, cells, holds)


LINES = [
    "%tf_gpu limit 60%",
    "%tf_gpu limit 60% --grow",
    "%tf_gpu split 5GiB 5GiB",
    "%tf_gpu pick 1; limit 60%",
    "%gpu limit 60%",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("point", POINTS)
def test_the_second_of_two_notebooks_is_warned_whenever_it_asks(
    machine: Machine, tmp_path: Path, line: str, point: str
) -> None:
    board = tmp_path / "board"
    with (
        notebook(machine, tmp_path / "1", board) as first,
        notebook(machine, tmp_path / "2", board) as second,
    ):
        asked = first.run(line, hold=point)
        first.wait_until_held()
        late = second.run(line, hold="waiting")
        second.wait_until_held()
        second.go_on()
        if point == "applying":
            late.result()
        first.go_on()

        said = late.result()
    assert "promised" not in asked.result()
    assert "Not applied" not in said
    assert "promised: " in said
