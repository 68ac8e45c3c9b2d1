"""An interrupt is for the call, which may take its time, however often it comes; it kills once a line has said so."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.isolate.rig import call, prepare
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.errors import TimedOut
from tfgpu_magic.isolate import call as calls
from tfgpu_magic.isolate.process import wire

pytestmark = pytest.mark.usefixtures("light", "impatient")

GRACE = 0.3 * SLACK


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer soon to kill a call that has not ended; one that saves takes longer than that."""
    monkeypatch.setattr(calls, "PATIENCE", GRACE)


def save(mark: str) -> str:
    Path(mark).with_name("saving").touch()
    time.sleep(3 * GRACE)
    Path(mark).with_name("saved").touch()
    return "saved"


def work(mark: str) -> None:
    Path(mark).touch()
    time.sleep(60)


def catch(mark: str) -> str:
    try:
        work(mark)
    except KeyboardInterrupt:
        return save(mark)
    return "never"


def catch_late(mark: str) -> str:
    try:
        catch(mark)
    except KeyboardInterrupt:
        return "saved less"
    return "never"


def tidy_up(mark: str) -> None:
    try:
        work(mark)
    finally:
        save(mark)


def have_a_handler(mark: str) -> str:
    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    Path(mark).touch()
    while not stop.is_set():
        time.sleep(0.01)
    return save(mark)


def be_cancelled(mark: str) -> str:
    async def work() -> str:
        try:
            Path(mark).touch()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return await asyncio.to_thread(save, mark)
        return "never"

    async def main() -> str:
        task = asyncio.ensure_future(work())
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
        return await task

    return asyncio.run(main())


def go_on(mark: str) -> None:
    while True:
        try:
            work(mark)
        except KeyboardInterrupt:
            Path(mark).with_name("went on").touch()


class SlowToSend:
    """What takes its time to be pickled."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[type, tuple[str]]:
        Path(self.mark).touch()
        time.sleep(3 * GRACE)
        return str, ("made in hours",)


def give_slowly(mark: str) -> str:
    wire_send = wire.send

    def send(*args: Any) -> None:
        wire.send = wire_send
        Path(mark).touch()
        time.sleep(3 * GRACE)
        wire_send(*args)

    wire.send = send  # type: ignore[assignment]
    return "made in hours"


def interrupts(
    function: Callable[[str], object], mark: Path, *, again: str = "", timeout: float | None = None
) -> object:
    """Return what a call returns that is interrupted once it works, and again when that mark is there."""
    one, _ = call(function, str(mark), timeout=timeout)

    def interrupt() -> None:
        for name in [mark.name, *([again] if again else [])]:
            while not mark.with_name(name).exists():
                time.sleep(0.01)
            one.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        return one.run(prepare()).value()
    finally:
        thread.join()


@pytest.mark.parametrize("function", [catch, have_a_handler, be_cancelled])
def test_a_call_that_heeds_an_interrupt_may_take_its_time(function: Callable[[str], object], tmp_path: Path) -> None:
    assert interrupts(function, tmp_path / "mark") == "saved"


def test_so_may_one_that_ends_of_it(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupts(tidy_up, tmp_path / "mark")

    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("function", [SlowToSend, give_slowly])
def test_what_is_done_is_not_lost_to_an_interrupt_while_it_is_sent(
    function: Callable[[str], object], tmp_path: Path
) -> None:
    assert interrupts(function, tmp_path / "mark") == "made in hours"


def test_a_second_interrupt_reaches_a_call_that_heeds_the_first(tmp_path: Path) -> None:
    assert interrupts(catch_late, tmp_path / "mark", again="saving") == "saved less"


def test_a_call_that_goes_on_is_interrupted_again_until_a_line_has_said_that_the_next_kills(tmp_path: Path) -> None:
    one, paper = call(go_on, str(tmp_path / "mark"))
    said: list[str] = []

    def interrupt() -> None:
        for _ in range(3):
            until((tmp_path / "mark").exists)
            (tmp_path / "mark").unlink()  # it is made again each time that the interrupt is heard
            one.interrupt()
        said.append(paper.text["stderr"])
        until(lambda: "The next interrupt kills it." in paper.text["stderr"])
        one.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt, match="did not end, and was killed"):
        one.run(prepare())
    thread.join()

    assert said == [""]


def test_a_call_that_heeds_its_timeout_may_save_what_it_has(tmp_path: Path) -> None:
    one, _ = call(catch, str(tmp_path / "mark"), timeout=8 * GRACE)
    answer = one.run(prepare())

    assert answer.late == 8 * GRACE
    assert (tmp_path / "saved").exists()
    with pytest.raises(TimedOut):
        answer.value()
