"""What errors know beside their text is a program's to ask, also of one that has come from another process."""

from __future__ import annotations

import copy
import pickle
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.isolate import deeds
from tests.isolate.rig import call, prepare, run
from tfgpu_magic import IsolatedExecutor, Refused, TfGpuError, TimedOut, TooLate, Unpicklable, WorkerDied
from tfgpu_magic.errors import NOT_STARTED

pytestmark = pytest.mark.usefixtures("light")

ERRORS = [
    WorkerDied("It died.", status=-11, memory=False),
    WorkerDied("It was stopped.", status=-9, stopped=True),
    TimedOut("It took too long.", seconds=2.5),
    Unpicklable("x cannot be sent.", what="x"),
    Refused("GPU 0 is full.", more=" So is GPU 1.", lead=" Fits now:   ", ways=["growth"]),
    TooLate("No call can have it.", verdict=NOT_STARTED, crowded=True),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_has_its_facts_in_another_process_too(error: TfGpuError) -> None:
    error.place = "there"
    with pytest.raises(type(error)) as caught:
        run(deeds.fail, (error,), {})

    for back in (caught.value, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(back) is type(error)
        assert (str(back), vars(back)) == (str(error), vars(error))


def test_a_place_is_told_once() -> None:
    error = WorkerDied("It died.")
    assert str(error) == "It died."

    error.place = "n1 (Dask worker a)"
    assert str(pickle.loads(pickle.dumps(error))) == "It died.\nThis was on n1 (Dask worker a)."


def test_a_crash_has_its_signal() -> None:
    with pytest.raises(WorkerDied) as caught:
        run(deeds.kill_itself, (signal.SIGSEGV,), {})

    assert (caught.value.status, caught.value.signal) == (-signal.SIGSEGV, signal.SIGSEGV)
    assert (caught.value.memory, caught.value.stopped) == (False, False)


def test_an_exit_has_its_status_and_no_signal() -> None:
    with pytest.raises(WorkerDied) as caught:
        run(deeds.leave, (3,), {})

    assert (caught.value.status, caught.value.signal) == (3, None)


def test_a_call_that_was_late_has_its_seconds() -> None:
    one, _ = call(deeds.loop_in_python, timeout=0.3)
    with pytest.raises(TimedOut) as caught:
        one.run(prepare()).value()

    assert caught.value.seconds == 0.3


class Doubled:
    """A value that works in place on what it is made again of."""

    def __init__(self) -> None:
        self.numbers = np.ones(2**17)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.numbers = state["numbers"]
        self.numbers *= 2


def test_a_value_is_made_again_once_and_only_where_it_arrives() -> None:
    assert run(Doubled, (), {}).numbers[0] == 2


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(Unpicklable) as there:
        run(deeds.echo, (threading.Lock(),), {})
    with pytest.raises(Unpicklable) as back:
        run(deeds.numbers, (), {})

    assert there.value.what == "argument 1 of echo"
    assert back.value.what == "the result of numbers"


def test_a_call_that_was_stopped_says_so(tmp_path: Path) -> None:
    with IsolatedExecutor(1, gpus=0) as executor:
        runs, waits = executor.submit(deeds.loop_in_c, str(tmp_path / "mark")), executor.submit(deeds.nothing)
        while not (tmp_path / "mark").exists():
            threading.Event().wait(0.01)
        waits.cancel()
        runs.stop(kill=True)
        with pytest.raises(WorkerDied) as caught:
            runs.result(60)

    assert caught.value.stopped
