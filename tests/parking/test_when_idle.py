"""When a process is due to be parked by itself: a made-up one, whose times are the test's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tfgpu_magic.ground import process_kind
from tfgpu_magic.notebook.words import line
from tfgpu_magic.parking import automatic
from tfgpu_magic.parking.automatic import Automatic
from tfgpu_magic.parking.table import PARK
from tfgpu_magic.policy.word import ParsedLine


@pytest.fixture
def process() -> SimpleNamespace:
    return SimpleNamespace(parked=False, back_at=float("-inf"))


@pytest.fixture
def watched(process: Any) -> Automatic:
    return Automatic(None, process, 60.0, when_needed=False)


def test_the_time_begins_with_the_last_use_and_with_each_return(watched: Automatic, process: SimpleNamespace) -> None:
    now = time.monotonic()
    watched._used_at = now - 100
    assert watched._seconds_left() < 0
    process.back_at = now + 1000  # it came back for an interrupted wait, or a widget
    assert watched._seconds_left() > 1000
    process.parked = True
    assert 59 < watched._seconds_left() <= 60


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    magics = SimpleNamespace(watches=())
    events = SimpleNamespace(register=lambda *_: None, unregister=lambda *_: None)
    monkeypatch.setattr(process_kind, "magics", lambda _: magics)
    monkeypatch.setattr(automatic, "_current", None)
    yield SimpleNamespace(events=events, magics=magics)
    for one in magics.watches:
        one.stop()


def test_another_time_and_off_end_what_watched_before(shell: Any, process: Any) -> None:
    def say(rest: str) -> tuple[Automatic, ...]:
        automatic.answer(line.with_arguments(ParsedLine("park", rest, restart=False, word=PARK)), shell, process)
        watches: tuple[Automatic, ...] = shell.magics.watches
        return watches

    (first,) = say("--auto 20m")
    (second,) = say("--auto 1h")
    assert (first._ended, second._ended) == (True, False)
    assert say("--auto off") == ()
    assert second._ended
    for one in threading.enumerate():
        if one.name == "tfgpu_magic-park-auto":
            one.join()
