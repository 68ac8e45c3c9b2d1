"""Whatever becomes of its parking, a call that makes way hears of it, or is ended: a real process, a made-up helper."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.isolate import way
from tfgpu_magic.isolate.process import wire
from tfgpu_magic.isolate.process.order import AWAY, NO, YES
from tfgpu_magic.isolate.process.wire import Message
from tfgpu_magic.isolate.way import Way
from tfgpu_magic.monitor.pids import began
from tfgpu_magic.parking import client
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.messages import Outcome, Progress
from tfgpu_magic.parking.record import Entry, Held
from tfgpu_magic.parking.states import Phase


@dataclass
class Call:
    """A call's process, and what comes of its parking.

    Attributes:
        entry: what the record says.
        said: what is said below its cell.
        signals: what was sent to it.
    """

    way: Way = field(default_factory=Way)
    status: int | None = None
    entry: Entry | None = None
    said: list[str] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connection, self._inside = wire.pair()
        self._inside.settimeout(20 * SLACK)
        self._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.pid = self._process.pid

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def makes_way(self, inside: Inside | why.Refusal | None = None) -> None:
        """Have it say that it waits to be parked."""
        message = Message(AWAY, (memoryview(pickle.dumps(inside or Inside())),))
        self.way.serve(self, message, self.said.append, ends=False)  # type: ignore[arg-type]  # it has what is used

    def heard(self) -> bytes:
        """Wait for what it is told."""
        message = wire.receive(self._inside)
        assert message is not None
        return bytes(message.parts[0])

    def is_recorded(self, phase: Phase) -> Outcome:
        """Have the record say so."""
        self.entry = Entry(
            pid=self.pid, began=began(self.pid) or 0, phase=phase, since=time.time(), held=(Held("GPU-0", GIB),)
        )
        return Outcome(entry=self.entry)

    def end(self) -> None:
        """Kill it, as the system does."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        self.end()
        self.connection.close()
        self._inside.close()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """A call that is parked when it is asked for."""
    one = Call()
    monkeypatch.setattr(way, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(client, "parked", lambda _: one.entry)
    monkeypatch.setattr(client, "park", lambda *_, **__: one.is_recorded(Phase.PARKED))
    yield one
    one.close()


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_a_call_that_cannot_be_parked_goes_on_whatever_the_reason(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "park", raising(OSError(24, "Too many open files")))

    call.makes_way()

    assert call.heard() == NO
    assert "Too many open files" in call.said[0]
    assert call.way.parked is None


@pytest.mark.parametrize(
    "gives", [raising(client.HelperDied("three times")), lambda: Outcome(refusals=(why.HOLDS_NOTHING(),))]
)
def test_a_call_does_not_go_on_where_nobody_knows_what_became_of_it(
    call: Call, monkeypatch: pytest.MonkeyPatch, gives: Callable[[], Outcome]
) -> None:
    """The helper dies over it, and the board is removed: no record is left to look into."""

    def parks(*_: Any, tell: Callable[[Progress], None], **__: Any) -> Outcome:
        call.is_recorded(Phase.LOCKING)
        tell(Progress(step="locks"))
        call.entry = None
        return gives()

    held: list[tuple[Held, ...]] = []

    def comes_back(*_: Any, **options: Any) -> Outcome:
        held.append(options["held"])
        return call.is_recorded(Phase.BACK)

    monkeypatch.setattr(client, "park", parks)
    monkeypatch.setattr(client, "unpark", comes_back)

    call.makes_way()

    assert call.heard() == YES
    assert held == [(Held("GPU-0", GIB),)]


def test_a_call_whose_return_fails_is_brought_back_by_the_next_try(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Callable[..., Any]] = [
        raising(OSError(24, "Too many open files")),
        lambda *_, **__: call.is_recorded(Phase.BACK),
    ]
    monkeypatch.setattr(client, "unpark", lambda *_, **options: answers.pop(0)(**options))

    call.makes_way()

    assert call.heard() == YES
    assert "Too many open files" in call.said[1]
    assert call.said[2].startswith("Back on the GPU after ")


def test_a_parked_call_that_nobody_could_tell_of_its_return_is_ended(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    call.way.suspend = raising(ValueError("no such lease"))

    call.makes_way()
    until(lambda: call.signals)

    assert call.signals == [signal.SIGKILL]
    assert call.said == ["The process that parks others cannot be asked: no such lease"]


def test_a_call_for_which_no_thread_can_be_started_goes_on(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))

    call.makes_way()

    assert call.heard() == NO
    assert call.way.parked is None


def test_a_call_that_is_being_parked_is_not_said_to_come_to_a_point(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = threading.Event()

    def copies(*_: Any, tell: Callable[[Progress], None], **__: Any) -> Outcome:
        tell(Progress(step="copies out", size=20 * GIB))
        copied.wait(20 * SLACK)
        return Outcome(refusals=(why.STILL_WORKING(1.0),))

    monkeypatch.setattr(client, "park", copies)
    monkeypatch.setattr(way, "_allowed", lambda: True)
    monkeypatch.setattr(way, "PROMPT", 0.0)
    call.way.offered = time.monotonic()
    call.makes_way()
    until(lambda: call.way.parked is not None and call.way.parked.size)

    assert call.way.park() == ""
    assert call.way.parked is not None
    assert (call.way.parked.state, call.way.parked.size) == ("parking", 20 * GIB)
    copied.set()
    assert call.heard() == NO


@pytest.mark.parametrize("kept", [False, True])
def test_nothing_is_said_of_a_parked_call_that_has_ended(
    call: Call, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    lent: list[bool] = []
    monkeypatch.setattr(client, "unpark", lambda *_, **__: Outcome(refusals=(why.ENDED(),)))
    call.way.suspend = lent.append
    if kept:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(way, "_allowed", lambda: True)
            patch.setattr(way, "PROMPT", 0.0)
            call.way.offered = time.monotonic()
            call.way.park()

    call.makes_way()
    until(lambda: call.said)
    time.sleep(0.1)
    call.end()
    until(lambda: lent == [True, False])
    until(lambda: not any(thread.name == "tfgpu_magic-way" for thread in threading.enumerate()))

    assert call.said == ["Parked: 1 GiB of GPU memory are in host memory now, and this call waits until they are back."]
