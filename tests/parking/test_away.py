"""The gate stays closed while the state is away, or may be, whatever is left of the record: with a made-up helper."""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizes import GIB
from tfgpu_magic.errors import MonitorError
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.parking import answers, client
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.inside import ipython
from tfgpu_magic.parking.inside import notebook as parking
from tfgpu_magic.parking.inside.gate import Caller, NotBack
from tfgpu_magic.parking.messages import ParkOutcome, Progress, Request
from tfgpu_magic.parking.record import ParkedProcess
from tfgpu_magic.parking.states import Phase

HELD = (HeldMemory("GPU-0", 5 * GIB),)


def entry(phase: Phase) -> ParkedProcess:
    return ParkedProcess(pid=os.getpid(), began=1, phase=phase, since=time.time(), held=HELD, name="")


class Helper:
    """What the helper says and does.

    Attributes:
        record: what the record says; None where it cannot be read.
        gives: what it answers, or how it fails.
        steps: what it tells before.
        removed: whether the board is removed after that.
    """

    def __init__(self) -> None:
        self.record: ParkedProcess | None = None
        self.gives: ParkOutcome | MonitorError = ParkOutcome()
        self.steps: tuple[str, ...] = ("checks", "locks", "copies out")
        self.removed = False

    def ask(self, _: Request, *, tell: Any, **__: Any) -> ParkOutcome:
        for step in self.steps:
            if step != "checks":
                self.record = entry(Phase.LOCKING)
            tell(Progress(step=step))
        if self.removed:
            self.record = None
        if isinstance(self.gives, MonitorError):
            raise self.gives
        return self.gives


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch) -> Helper:
    helper = Helper()
    monkeypatch.setattr(client, "ask", helper.ask)
    monkeypatch.setattr(client, "parked", lambda: helper.record)
    monkeypatch.setattr(ipython, "block_cells", lambda *_: iter(()))
    monkeypatch.setattr(parking, "read_inside", lambda *_: Inside())
    monkeypatch.setattr(parking, "quieten", lambda *_: None)
    monkeypatch.setattr(cuda, "quieten", lambda _: True)
    monkeypatch.setattr(parking, "notebook_of", lambda _: "")
    return helper


@pytest.fixture
def notebook(helper: Helper) -> Iterator[parking.ProcessParking]:
    magics = SimpleNamespace(parking_on_open_module=False, idle_release=SimpleNamespace(put_off=lambda: True))
    notebook = parking.ProcessParking(SimpleNamespace(magics_manager=SimpleNamespace(registry={"TfGpuMagics": magics})))
    yield notebook
    atexit.unregister(notebook._leave)
    notebook._gate.open()


@pytest.fixture
def ends(notebook: parking.ProcessParking, helper: Helper, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A parked notebook, and what its end does in turn."""
    done: list[str] = []

    def comes_back(**_: Any) -> ParkOutcome:
        done.append(
            "back, " + ("whoever says SIGTERM" if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN else "or not")
        )
        return ParkOutcome(entry=entry(Phase.BACK))

    helper.gives = ParkOutcome(entry=entry(Phase.PARKED))
    notebook.park()
    monkeypatch.setattr(client, "unpark", comes_back)
    monkeypatch.setattr(os, "_exit", lambda _: done.append("ends"))
    before = signal.getsignal(signal.SIGTERM)
    yield done
    signal.signal(signal.SIGTERM, before)


def test_an_end_that_has_begun_is_not_cut_short_by_a_signal(
    notebook: parking.ProcessParking, ends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jupyter Server sends one after half of the time that it gives a kernel."""
    monkeypatch.setattr(client, "seconds_back", lambda _: 1.0)

    notebook._leave()

    assert ends == ["back, whoever says SIGTERM"]
    assert not notebook.parked


def test_an_end_begins_no_copy_that_takes_longer_than_it_may(
    notebook: parking.ProcessParking, ends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(client, "seconds_back", lambda size: asked.append(size) or 20.0)  # type: ignore[func-returns-value]

    notebook._leave()

    assert ends == ["ends"]
    assert asked == [5 * GIB]
    assert notebook.parked


def test_what_is_parked_is_so_though_the_board_was_removed_meanwhile(
    helper: Helper, notebook: parking.ProcessParking
) -> None:
    helper.removed, helper.gives = True, ParkOutcome(entry=entry(Phase.PARKED))

    assert notebook.park().done
    assert notebook.parked
    assert notebook._held == HELD


@pytest.mark.parametrize(
    "gives",
    [
        client.ParkerDied("three times"),
        ParkOutcome(refusals=(why.HOLDS_NOTHING(),)),
        ParkOutcome(refusals=(why.ELSEWHERE(),)),
    ],
)
def test_where_nobody_knows_what_became_of_it_nothing_may_run(
    helper: Helper, notebook: parking.ProcessParking, gives: ParkOutcome | MonitorError
) -> None:
    """Another helper than the one that had begun finds no record: it does not know the process for one of ours."""
    helper.removed, helper.gives = True, gives
    if isinstance(gives, MonitorError):
        with pytest.raises(MonitorError):
            notebook.park()
    else:
        notebook.park()

    assert notebook.parked
    assert notebook._held == HELD


@pytest.mark.parametrize(
    ("steps", "gives"),
    [
        ((), client.ParkerHangs("cannot be started")),
        (("checks",), client.ParkerDied("three times")),
        (("checks",), ParkOutcome(refusals=(why.HOLDS_NOTHING(),))),
        (("checks", "locks"), ParkOutcome(refusals=(why.STILL_WORKING(1.0),))),
    ],
)
def test_what_was_surely_not_parked_goes_on(
    helper: Helper, notebook: parking.ProcessParking, steps: tuple[str, ...], gives: ParkOutcome | MonitorError
) -> None:
    helper.steps, helper.removed, helper.gives = steps, True, gives
    if isinstance(gives, MonitorError):
        with pytest.raises(MonitorError):
            notebook.park()
    else:
        assert notebook.park() == gives

    assert not notebook.parked


def test_a_cell_is_told_that_it_was_not_run_where_nobody_can_be_asked(
    notebook: parking.ProcessParking, helper: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(**_: Any) -> ParkOutcome:
        raise client.ParkerHangs("The process that parks others does not answer.")

    helper.gives = ParkOutcome(entry=entry(Phase.PARKED))
    notebook.park()
    monkeypatch.setattr(client, "unpark", hangs)
    monkeypatch.setattr(parking, "here", lambda: "notebook")

    with pytest.raises(NotBack) as told:
        notebook._come(Caller.QUESTION)

    assert str(told.value) == (
        "The process that parks others does not answer. This notebook is still parked, and nothing is lost: run it "
        f"again. {answers.WITHOUT}"
    )
    assert notebook.parked
