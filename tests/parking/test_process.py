"""The gate opens only when everything is back, whatever fails: with arrays made for this test, in this process."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waiting import until
from tfgpu_magic.parking.arrays import MovedArrays
from tfgpu_magic.parking.kernel import ipython, process, running_code
from tfgpu_magic.parking.kernel.gate import StillParked
from tfgpu_magic.parking.kernel.process import GatedProcess


class Shelf(MovedArrays):
    """What moves nothing: it notes where the state is, and fails or waits when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.fails = ""
        self.room = threading.Event()
        self.room.set()
        self.begun = 0
        self.unreadable = False

    def any_moved(self) -> bool:
        return self.is_away

    def move_out(self, *_: object) -> None:
        self._fail()
        self.is_away = True

    def move_back(self, wanted: Any = None, show: Any = None) -> None:
        self.begun += 1
        show("Waiting for room.")
        while not self.room.wait(0.05):
            if not wanted():
                return
        self._fail()
        self.is_away = False

    def make_unreadable(self) -> None:
        self._fail()
        self.unreadable = True

    def _fail(self) -> None:
        if self.fails:
            raise RuntimeError(self.fails)


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


def test_it_is_parked_and_comes_back_once_for_all_who_wait(gated: GatedProcess, shelf: Shelf) -> None:
    shelf.room.clear()
    assert gated.park() == ()
    assert gated.park() == ()  # it is so already
    assert (gated.parked, shelf.is_away) == (True, True)
    waiters = [threading.Thread(target=gated._come) for _ in range(3)]
    for one in waiters:
        one.start()
    until(lambda: gated._attempt is not None and gated._attempt._waiters == 3)
    shelf.room.set()
    for one in waiters:
        one.join()

    assert (gated.parked, shelf.is_away, shelf.begun) == (False, False, 1)


def test_what_cannot_go_away_stays_and_the_gate_is_open(gated: GatedProcess, shelf: Shelf) -> None:
    shelf.fails = "no host memory"

    assert gated.park() == ("no host memory",)
    assert not gated.parked


def test_nothing_runs_while_the_state_does_not_come_back(gated: GatedProcess, shelf: Shelf) -> None:
    gated.park()
    shelf.fails = "no room"
    with pytest.raises(StillParked, match="does not come back"):
        gated._come(in_cell=True)
    assert gated.parked
    shelf.fails = ""
    gated._come(in_cell=True)

    assert not gated.parked


def _waits(gated: GatedProcess) -> threading.Thread:
    """Return a thread that waits for the state, in vain or not."""

    def wait() -> None:
        with contextlib.suppress(StillParked):
            gated._come()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def _interrupt(shelf: Shelf) -> None:
    """Interrupt who waits, once the way back has begun."""
    until(lambda: shelf.begun)
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_ends_the_wait_and_it_stays_parked(gated: GatedProcess, shelf: Shelf) -> None:
    shelf.room.clear()
    gated.park()
    threading.Thread(target=_interrupt, args=(shelf,)).start()
    with pytest.raises(StillParked, match="still parked, and nothing is lost"):
        gated._come(in_cell=True)

    assert (gated.parked, shelf.is_away) == (True, True)


def test_who_interrupts_a_return_that_can_only_end_gets_the_prompt_and_the_state(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that copies does, whoever waits for it."""

    def move_back(_: Callable[[], bool], __: Callable[[str], object]) -> None:
        shelf.begun += 1
        shelf.room.wait()
        shelf.is_away = False

    monkeypatch.setattr(shelf, "move_back", move_back)
    shelf.room.clear()
    gated.park()

    def interrupt() -> None:
        _interrupt(shelf)
        shelf.room.set()

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
    assert gated.park() == ("one array stays",)
    assert gated.parked
    gated._come(in_cell=True)

    assert (gated.parked, shelf.is_away) == (False, False)


def test_a_cell_begun_before_the_gate_closes_is_seen(gated: GatedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_code, "cell_runs", lambda _: gated.parked)  # it has begun as the gate closed

    assert gated.park() == ("A cell is running. A notebook can be parked only between cells.",)
    assert not gated.parked


def test_a_long_return_is_told_below_its_cell_and_a_short_one_is_kept_only(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for least in (60.0, 0.0):
        monkeypatch.setattr(process, "LONG", least)
        gated.park()
        shelf.return_seconds = 1.5
        gated._come(in_cell=True)
        assert (capsys.readouterr().out == "All is back on the GPU. It took 1.5 s.\n") is (least == 0)


def test_it_goes_on_without_what_is_away_and_is_not_parked_again(gated: GatedProcess, shelf: Shelf) -> None:
    shelf.room.clear()
    gated.park()
    with pytest.raises(StillParked, match=r"There is no variable `modle`\. Nothing was changed\."):
        gated._go_without(["modle"])
    assert (gated.parked, shelf.unreadable) == (True, False)
    waiter = _waits(gated)
    until(lambda: shelf.begun)
    gated._go_without(["model"])
    waiter.join()

    assert (gated.parked, shelf.is_away, shelf.unreadable) == (False, True, True)
    assert gated.park() == ("This program goes on without what was parked. Save that, and restart.",)
    gated._come(in_cell=True)


def test_what_can_be_read_keeps_the_gate_closed(gated: GatedProcess, shelf: Shelf) -> None:
    gated.park()
    shelf.fails = "it reads as empty"
    with pytest.raises(StillParked, match="it reads as empty"):
        gated._go_without(["model"])

    assert gated.parked


def test_a_return_that_hangs_does_not_keep_it_from_going_on_without(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CALL_OFF_TIMEOUT", 0.0)
    monkeypatch.setattr(shelf, "move_back", lambda *_: shelf.room.wait())
    shelf.room.clear()
    gated.park()
    waiter = _waits(gated)
    until(lambda: gated._attempt)
    gated._go_without(["model"])
    shelf.room.set()
    waiter.join()

    assert (gated.parked, shelf.unreadable, gated.without) == (False, True, True)


def test_a_return_that_ends_late_opens_nothing_for_what_leaves_by_then(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, go, moves_back = threading.Event(), threading.Event(), shelf.move_back
    monkeypatch.setattr(shelf, "move_back", lambda *_: late.wait())
    gated.park()
    waiter = _waits(gated)
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
    leaves.wait(print)
    waiter.join()


@pytest.mark.parametrize("too_late", [False, True])
def test_who_comes_while_it_leaves_calls_that_off_and_waits_for_its_end(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, too_late: bool
) -> None:
    def move_out(wanted: Callable[[], bool], _: object) -> None:
        shelf.begun = -1
        until(lambda: not wanted())
        shelf.is_away = too_late
        if not too_late:
            raise RuntimeError("It was called off.")

    monkeypatch.setattr(shelf, "move_out", move_out)
    against, leaves = gated.begin_to_park()
    until(lambda: shelf.begun)
    other = _waits(gated)
    gated._come(in_cell=True)
    other.join()

    assert (against, gated.parked, shelf.is_away) == ((), False, False)
    assert shelf.begun == (0 if too_late else -1)  # it came back once
    assert leaves is not None
    assert leaves.wait(print) == ("" if too_late else "It was called off.")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_process_waits_until_it_is_parked(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    said: list[Any] = []

    def move_out(*_: object) -> None:
        signal.raise_signal(number)
        said.append("parks")

    before = signal.signal(number, lambda *_: said.append("ends"))
    monkeypatch.setattr(shelf, "move_out", move_out)
    try:
        gated.park()
    finally:
        signal.signal(number, before)

    assert said == ["parks", "ends"]


def test_an_interrupt_of_the_way_out_is_heard_there_and_shown_is_how_it_gets_on(
    gated: GatedProcess, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def move_out(wanted: Callable[[], bool], show: Callable[[str], object]) -> None:
        show("1 of 2 GiB")
        until(lambda: "1 of 2 GiB" in shown)
        signal.raise_signal(signal.SIGINT)
        until(lambda: not wanted())
        raise RuntimeError("It was interrupted.")

    monkeypatch.setattr(shelf, "move_out", move_out)

    assert gated.park(shown.append) == ("It was interrupted.",)
    assert (gated.parked, shelf.is_away) == (False, False)


@pytest.mark.parametrize("change", range(4))
def test_an_interrupt_amid_a_change_of_handlers_leaves_them_be(change: int, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    set_handler, changes = signal.signal, list[int]()

    def handled(number: int, handler: Any) -> Any:
        was = set_handler(number, handler)
        changes.append(number)
        if len(changes) == change + 1:
            signal.raise_signal(signal.SIGINT)
        return was

    try:
        with monkeypatch.context() as patch:
            patch.setattr(signal, "signal", handled)
            patch.setattr(signal, "getsignal", lambda number: print if number == signal.SIGTERM else signal.SIG_IGN)
            try:
                with process.uninterrupted():
                    pass
            except KeyboardInterrupt:
                pass
        found = [signal.getsignal(number) for number in numbers]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

    assert found == [signal.default_int_handler] * 2
