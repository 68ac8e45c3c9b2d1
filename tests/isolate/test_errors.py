"""What errors know beside their text is a program's to ask, also of one that has come from another process."""

from __future__ import annotations

import copy
import pickle

import pytest

from tests.isolate import deeds
from tests.isolate.rig import run
from tfgpu_magic import Refused, TfGpuError, TimedOut, TooLate, Unpicklable, WorkerDied
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
