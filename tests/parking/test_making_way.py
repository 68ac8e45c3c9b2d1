"""A call that asks whether it is to make way goes on where it cannot be parked: the real wire, a made-up caller."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.slack import SLACK
from tfgpu_magic import frameworks
from tfgpu_magic.config import cuda
from tfgpu_magic.isolate.process import inside, wire
from tfgpu_magic.isolate.process.order import AWAY, BACK, NO, POINT, YES
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.inside import making_way


class Caller:
    """The caller, which wants the room at each point, and cannot have the call parked.

    Attributes:
        heard: what the call says, by kind.
    """

    def __init__(self) -> None:
        self._outside, self.inside = wire.pair()
        self.heard: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def _answer(self) -> None:
        while (message := wire.receive(self._outside)) is not None:
            self.heard[message.kind] = pickle.loads(message.parts[0]) if message.parts else None
            if message.kind != BACK:
                wire.send(self._outside, message.kind, [YES if message.kind == POINT else NO])

    def close(self) -> None:
        """Close the connection, once all was heard."""
        self.inside.close()
        self._thread.join(20 * SLACK)
        self._outside.close()


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    one = Caller()
    monkeypatch.setattr(inside, "connection", one.inside)
    monkeypatch.setattr(making_way, "_asked_at", float("-inf"))
    with contextlib.closing(one):
        yield one


def test_a_call_that_asks_in_a_thread_is_not_taken_for_parked_when_it_goes_on(caller: Caller) -> None:
    came: list[bool] = []
    thread = threading.Thread(target=lambda: came.append(making_way.make_way()))
    thread.start()
    thread.join(20 * SLACK)
    caller.close()

    assert came == [False]
    assert list(caller.heard) == [POINT, AWAY, BACK]


def test_an_error_of_what_the_gpu_was_given_to_do_ends_no_call(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("the user's own")

    def end(status: int) -> None:
        raise AssertionError(f"it ends with {status}")

    monkeypatch.setattr(frameworks, "finish", fail)
    monkeypatch.setattr(os, "_exit", end)

    assert making_way.make_way() is False

    caller.close()
    assert caller.heard[AWAY] == why.FAILED("the user's own")
    assert list(caller.heard) == [POINT, AWAY, BACK]
    assert gc.isenabled()
    assert not cuda._quiet
