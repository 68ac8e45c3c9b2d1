"""The gate opens only when everything is back, whatever fails: with arrays made for this test, in this process."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waiting import until
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.parking.arrays import MovedArrays
from tfgpu_magic.parking.kernel import ipython, process, running_code
from tfgpu_magic.parking.kernel.gate import StillParked
from tfgpu_magic.parking.kernel.process import GatedProcess


class Shelf(MovedArrays):
    """What moves nothing: it notes where the state is, waits for room on its way back, and fails if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = self.unreadable = False
        self.fails = ""
        self.begun = 0  # how often it came back
        self.room = threading.Event()
        self.room.set()

    def any_moved(self) -> bool:
        return self.is_away

    def move_out(self, *_: object) -> None:
        self.is_away = True

    def move_back(self, wanted: Any = None, show: Any = None) -> None:
        self.begun += 1
        show(msg("Waiting for room."))
        while not self.room.wait(0.05):
            if not wanted():
                return
        self.is_away = False

    def make_unreadable(self) -> None:
        if self.fails:
            raise RuntimeError(self.fails)
        self.unreadable = True


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def gated(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Iterator[GatedProcess]:
    monkeypatch.setattr(ipython, "block_cells", lambda *_: iter(()))
    monkeypatch.setattr(running_code, "block", lambda *_: iter(()))
    made = GatedProcess(SimpleNamespace(user_ns={"model": 1}), shelf)
    yield made
    made._gate.close()
    made._gate.open()


def said(messages: Iterable[Message]) -> list[str]:
    return [*map(str, messages)]


@contextlib.contextmanager
def waiting(gated: GatedProcess) -> Iterator[None]:
    """Have a thread wait for the state, in vain or not, and let it end after the block."""

    def wait() -> None:
        with contextlib.suppress(StillParked):
            gated._come()

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def test_it_comes_back_once_for_all_who_wait(gated: GatedProcess, shelf: Shelf) -> None:
    shelf.room.clear()
    assert (*gated.park(), *gated.park()) == ()
    with waiting(gated), waiting(gated), waiting(gated):
        until(lambda: shelf.begun)
        shelf.room.set()

    assert (gated.parked, shelf.is_away, shelf.begun) == (False, False, 1)


def test_who_interrupts_a_return_that_can_only_end_gets_the_prompt_and_the_state(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that copies does, whoever waits for it."""

    def move_back(_: Callable[[], bool], __: Callable[[str], object]) -> None:
        shelf.begun += 1
        shelf.room.wait()
        shelf.is_away = False

    def interrupt() -> None:
        until(lambda: shelf.begun)
        signal.raise_signal(signal.SIGINT)
        shelf.room.set()

    monkeypatch.setattr(shelf, "move_back", move_back)
    shelf.room.clear()
    gated.park()
    threading.Thread(target=interrupt).start()
    with pytest.raises(StillParked, match="is back on the GPU meanwhile"):
        gated._come(in_cell=True)

    assert not gated.parked


def test_what_fails_midway_is_away_and_comes_back_before_anything_runs(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move_out(*_: object) -> None:
        shelf.is_away = True
        raise RuntimeError("one array stays")

    monkeypatch.setattr(shelf, "move_out", move_out)
    assert said(gated.park()) == ["one array stays"]
    assert gated.parked
    gated._come(in_cell=True)

    assert (gated.parked, shelf.is_away) == (False, False)


def test_a_cell_begun_before_the_gate_closes_is_seen(gated: GatedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_code, "cell_runs", lambda _: gated.parked)  # it has begun as the gate closed

    assert said(gated.park()) == ["A cell is running. A notebook can be parked only between cells."]
    assert not gated.parked


@pytest.mark.parametrize(("seconds", "said"), [(1.5, "All is back on the GPU. It took 1.5 s.\n"), (0.5, "")])
def test_a_long_return_is_told_below_its_cell_and_a_short_one_is_kept_only(
    gated: GatedProcess, shelf: Shelf, capsys: pytest.CaptureFixture[str], seconds: float, said: str
) -> None:
    gated.park()
    shelf.return_seconds = seconds
    gated._come(in_cell=True)

    assert capsys.readouterr().out == said


@pytest.mark.parametrize("hangs", [False, True])
def test_it_goes_on_without_what_is_away_even_if_a_return_hangs_and_is_not_parked_again(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    if hangs:
        monkeypatch.setattr(process, "CALL_OFF_TIMEOUT", 0.0)
        monkeypatch.setattr(shelf, "move_back", lambda *_: shelf.room.wait())
    shelf.room.clear()
    gated.park()
    with pytest.raises(StillParked, match=r"There is no variable `modle`\. Nothing was changed\."):
        gated._go_without(["modle"])
    assert (gated.parked, shelf.unreadable) == (True, False)
    with waiting(gated):
        until(lambda: gated._attempt, lambda attempt: not attempt.out)  # type: ignore[union-attr]
        gated._go_without(["model"])
        shelf.room.set()

    assert (gated.parked, shelf.is_away, shelf.unreadable) == (False, True, True)
    assert said(gated.park()) == ["This program goes on without what was parked. Save that, and restart."]
    gated._come(in_cell=True)


def test_what_can_be_read_keeps_the_gate_closed(gated: GatedProcess, shelf: Shelf) -> None:
    gated.park()
    shelf.fails = "it reads as empty"
    with pytest.raises(StillParked, match="it reads as empty"):
        gated._go_without(["model"])

    assert gated.parked


def test_a_return_that_ends_late_opens_nothing_for_what_leaves_by_then(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, go, moves_back = threading.Event(), threading.Event(), shelf.move_back
    monkeypatch.setattr(shelf, "move_back", lambda *_: late.wait())
    gated.park()
    with waiting(gated):
        hangs = until(lambda: gated._attempt, lambda attempt: not attempt.out)  # type: ignore[union-attr]
        assert hangs is not None
        hangs.call_off(0)
        monkeypatch.setattr(shelf, "move_back", moves_back)
        gated._come()
        monkeypatch.setattr(shelf, "move_out", lambda *_: go.wait())
        _, leaves = gated.begin_to_park()
        late.set()
        until(lambda: hangs.ended)

        assert gated.parked
        go.set()
        assert leaves is not None
        leaves.wait()


@pytest.mark.parametrize("too_late", [False, True])
def test_who_comes_while_it_leaves_calls_that_off_and_waits_for_its_end(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, too_late: bool
) -> None:
    begun = threading.Event()

    def move_out(wanted: Callable[[], bool], _: object) -> None:
        begun.set()
        until(lambda: not wanted())
        shelf.is_away = too_late
        if not too_late:
            raise RuntimeError("It was called off.")

    monkeypatch.setattr(shelf, "move_out", move_out)
    against, leaves = gated.begin_to_park()
    begun.wait()
    with waiting(gated):
        gated._come(in_cell=True)

    assert (against, gated.parked, shelf.is_away, shelf.begun) == ((), False, False, int(too_late))
    assert leaves is not None
    assert said(filter(None, [leaves.wait()])) == ["It was called off."] * (not too_late)
