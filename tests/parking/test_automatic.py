"""What parks itself minds those who are not parked: with a made-up notebook and a made-up clock."""

from __future__ import annotations

import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from tfgpu_magic.config import cuda
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.inside import notebook
from tfgpu_magic.parking.inside.automatic import Automatic
from tfgpu_magic.parking.messages import Outcome


class Clock:
    """The clock, which a second goes by on whenever somebody waits for it."""

    def __init__(self, end: float) -> None:
        self.now, self._end = 0.0, end

    def wait(self, _: float) -> bool:
        self.now += 1
        return self.now > self._end

    def is_set(self) -> bool:
        return False


def test_one_that_cannot_be_parked_is_tried_again_and_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tried = Clock(2000), list[float]()

    def refused() -> Outcome:
        tried.append(clock.now)
        return Outcome(refusals=(why.BUSY(),))

    fake = SimpleNamespace(active=0.0, parked=False, park=refused)
    monkeypatch.setattr(notebook, "of", lambda _: fake)
    monkeypatch.setattr(cuda, "pools", lambda: {"0": 1})
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    automatic = Automatic(SimpleNamespace(), 60.0, when_needed=False)
    monkeypatch.setattr(automatic, "_ended", clock)
    automatic._ends(None)
    automatic._run()

    assert [later - one for one, later in pairwise(tried)] == [
        15,
        30,
        60,
        120,
        240,
        300,
        300,
        300,
        300,
    ]
    assert tried[0] == 60.0
