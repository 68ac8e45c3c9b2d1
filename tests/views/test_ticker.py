"""The thread that keeps live tables up to date: what goes wrong in it reaches no cell, and no cell waits for it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.ground.rows import Table
from tfgpu_magic.machine.board.history import History
from tfgpu_magic.notebook import widget
from tfgpu_magic.notebook.widget import MemoryTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


class Watcher:
    """Stands for what is watched: what it does is the test's."""

    def __init__(self, **_: object) -> None:
        self.watch = self

    def wait(self, _: float) -> None:
        """Find everything there at once."""

    def close(self) -> None:
        """Have nothing to let go of."""

    def see(self) -> Table:
        return Table(summary=f"Look {time.monotonic()}.")

    def history(self) -> History:
        return History()


@pytest.fixture(autouse=True)
def ticker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widget, "_TICKER", widget._Ticker())
    monkeypatch.setattr(widget, "Watcher", Watcher)
    monkeypatch.setattr(widget, "STATE_EVERY", 0.02)


@pytest.fixture
def table() -> Iterator[MemoryTable]:
    table = MemoryTable()
    yield table
    table.close()


def changes(table: MemoryTable) -> Callable[[], bool]:
    before = dict(table.state)
    return lambda: table.state != before and not table.state.get("error")


@pytest.mark.parametrize("what", ["the look", "the drawing"])
def test_what_fails_is_done_again_and_a_look_that_does_is_said_in_the_table(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    tried = threading.Event()

    def fail(*_: object) -> Any:
        tried.set()
        raise ValueError("nobody has thought of this")

    with monkeypatch.context() as patch:
        if what == "the look":
            patch.setattr(Watcher, "see", fail)
            until(lambda: "something is wrong in tfgpu_magic" in table.state.get("error", ""), seconds=5)
        else:
            patch.setattr(table, "show", fail)
        assert tried.wait(5 * SLACK)
    until(changes(table), seconds=5)


def test_when_no_page_draws_it_nothing_is_watched(table: MemoryTable, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()
    monkeypatch.setattr(Watcher, "close", lambda _: closed.set())
    until(changes(table), seconds=5)
    table.close()

    assert closed.wait(5 * SLACK)


def test_while_a_look_hangs_the_table_is_closed_and_opened_all_the_same(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, go_on = threading.Event(), threading.Event()

    def hang(_: Watcher) -> Any:
        hangs.set()
        go_on.wait()
        return Table()

    monkeypatch.setattr(widget, "LOOK_TIMEOUT", 0.1)
    monkeypatch.setattr(Watcher, "see", hang)
    assert hangs.wait(10 * SLACK)
    try:
        table.close()
        table.__del__()  # the garbage collector does that wherever it pleases
        new = MemoryTable()
        first = dict(new.state)
    finally:
        go_on.set()
    until(lambda: new.state != first, seconds=5)
    new.close()

    assert "cannot be read" in first["error"]


@pytest.mark.parametrize("how", ["opened", "refreshed"])
def test_a_cell_waits_for_no_look_that_hangs(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def hang(_: Watcher) -> Any:
        go_on.wait(10)
        return Table()

    monkeypatch.setattr(widget._Ticker, "go", lambda *_: None)  # the cell's own looks are the only ones
    monkeypatch.setattr(widget, "LOOK_TIMEOUT", 0.1)
    before = MemoryTable() if how == "refreshed" else None
    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "see", hang)
        table = MemoryTable()
        seen = table.state
        go_on.set()

    def answered() -> bool:
        table.refresh()
        return not table.state.get("error")

    assert "cannot be read" in seen.get("error", "")
    assert before in (None, table)
    until(answered, seconds=5)
    table.close()
