"""The thread that keeps live tables up to date: what goes wrong in it reaches no cell, and nobody waits for it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.slack import SLACK
from tfgpu_magic.monitor.board import NOTHING, Look
from tfgpu_magic.monitor.history import History
from tfgpu_magic.monitor.rows import Table
from tfgpu_magic.monitor.viewing import Sight
from tfgpu_magic.views import widget
from tfgpu_magic.views.widget import MemoryTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


class Viewing:
    """Stands for what is watched: what it does is the test's."""

    def __init__(self, **_: object) -> None:
        self.live = self

    def wait(self, _: float) -> None:
        """Find everything there at once."""

    def close(self) -> None:
        """Have nothing to let go of."""

    def see(self) -> Sight:
        return Sight(Look(NOTHING, None, None), Table(summary=f"Look {time.monotonic()}."))

    def history(self) -> History:
        return History()


@pytest.fixture(autouse=True)
def ticker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widget, "_TICKER", widget._Ticker())
    monkeypatch.setattr(widget, "Viewing", Viewing)
    monkeypatch.setattr(widget, "EVERY", 0.02)


@pytest.fixture
def tables() -> Iterator[list[MemoryTable]]:
    tables = [MemoryTable(), MemoryTable()]
    yield tables
    for table in tables:
        table.close()


def until(promise: Callable[[], object], seconds: float = 5) -> None:
    end = time.monotonic() + seconds * SLACK
    while not promise():
        assert time.monotonic() < end, f"not so within {seconds} s"
        time.sleep(0.01)


def changes(table: MemoryTable) -> Callable[[], bool]:
    before = dict(table.state)
    return lambda: table.state != before and not table.state.get("error")


def fail(*_: object) -> Any:
    raise ValueError("nobody has thought of this")


def test_a_look_that_fails_is_said_in_the_table_until_one_succeeds(
    tables: list[MemoryTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Viewing, "see", fail)
        until(lambda: "something is wrong in tfgpu_magic" in tables[0].state.get("error", ""))
    until(changes(tables[0]))


def test_a_table_that_cannot_be_drawn_leaves_the_others_alone(
    tables: list[MemoryTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in tables:
        with monkeypatch.context() as patch:
            patch.setattr(table, "show", fail)
            other = next(one for one in tables if one is not table)
            until(changes(other))
            until(changes(other))


def test_while_a_look_hangs_tables_are_closed_and_opened_all_the_same(
    tables: list[MemoryTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, go_on = threading.Event(), threading.Event()

    def hang(_: Viewing) -> Any:
        hangs.set()
        go_on.wait(30)
        return Sight(Look(NOTHING, None, None), Table())

    monkeypatch.setattr(widget, "PATIENCE", 0.1)
    monkeypatch.setattr(Viewing, "see", hang)
    hangs.wait(10)
    try:
        begin = time.monotonic()
        tables[0].close()
        tables[0].__del__()  # the garbage collector does that wherever it pleases
        new = MemoryTable()
        took = time.monotonic() - begin
    finally:
        go_on.set()
    new.close()

    assert took < 2 * SLACK
    assert "cannot be read" in new.state["error"]
