"""An exception of a call arrives as its own type, with the story that the call's process tells and with its facts."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import traceback

import pytest

from tests.isolate import deeds
from tests.isolate.rig import run
from tfgpu_magic.errors import (
    NOT_STARTED,
    Raised,
    Refused,
    TfGpuError,
    TimedOut,
    TooLate,
    Unpicklable,
    WorkerDied,
)
from tfgpu_magic.ground.message import msg

pytestmark = pytest.mark.usefixtures("light")


def raised(error: BaseException) -> BaseException:
    with pytest.raises(BaseException) as caught:
        run(deeds.fail, (error,), {})
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 5),
        KeyError("k"),
        OSError(2, "No such file or directory", "/there"),
        FileNotFoundError(2, "No such file or directory", "/there"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ImportError("no", name="there", path="/there"),
        SystemExit(3),
        KeyboardInterrupt("now"),
        StopIteration(4),
        deeds.Slotted("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_arrives_as_it_was(error: BaseException) -> None:
    back = raised(error)

    assert type(back) is type(error)
    assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))


def test_an_odd_init_is_not_called_again() -> None:
    with pytest.raises(deeds.NeedsMore, match="no /there") as needs:
        run(deeds.fail_needs_more, (), {})
    with pytest.raises(deeds.Counts, match=r"^code 5$"):
        run(deeds.fail_counts, (), {})

    assert needs.value.path == "/there"
    assert type(raised(deeds.Mute())) is deeds.Mute  # which has no words


def test_of_what_cannot_be_sent_the_rest_arrives() -> None:
    with pytest.raises(deeds.Locked, match="with a lock") as caught:
        run(deeds.fail_locked, (), {})

    assert caught.value.kept == 5
    assert "lock" in caught.value.args[1]
    assert not hasattr(caught.value, "lock")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no exception groups")
def test_a_group_arrives_whole() -> None:
    back = raised(ExceptionGroup("both", [ValueError("a"), OSError(2, "b")]))  # type: ignore[name-defined,unused-ignore]  # noqa: F821

    assert [type(error) for error in back.exceptions] == [ValueError, FileNotFoundError]  # type: ignore[attr-defined]


def test_a_type_that_exists_only_there_gets_a_stand_in_of_its_name() -> None:
    def fail() -> None:
        raise type("Nowhere", (Exception,), {"lock": threading.Lock()})("words")

    with pytest.raises(Raised, match="words") as caught:
        run(fail, (), {})

    assert type(caught.value).__name__ == "Nowhere"


def test_the_story_shows_the_calls_own_lines_and_none_of_ours() -> None:
    with pytest.raises(ValueError, match="second") as caught:
        run(deeds.chained, (), {})
    story = "".join(traceback.format_exception(caught.value))

    assert 'dict[str, int]()["first"]' in story
    assert 'raise ValueError("second") from error' in story
    assert "direct cause" in story
    assert "worker.py" not in story


def test_what_cannot_come_home_is_told_without_frames_of_ours() -> None:
    with pytest.raises(TypeError) as caught:
        run(deeds.numbers, (), {})

    assert "worker.py" not in str(caught.value.__cause__)


def test_the_frames_of_the_call_are_in_its_story_and_not_once_more_in_the_error() -> None:
    with pytest.raises(KeyError) as caught:
        run(deeds.raise_with_tblib, (), {})

    assert "in raise_with_tblib" in str(caught.value.__cause__)
    assert not [frame for frame in traceback.extract_tb(caught.value.__traceback__) if frame.name == "raise_with_tblib"]


ERRORS = [
    WorkerDied("It died.", status=-11, memory=False),
    WorkerDied("It was stopped.", status=-9, stopped=True),
    TimedOut("It took too long.", seconds=2.5),
    Unpicklable("x cannot be sent.", what="x"),
    Refused(msg("GPU {gpu} is full.", gpu=0).with_tries(" Fits now:   ", ["growth"])),
    TooLate("No call can have it.", verdict=NOT_STARTED, retryable={"GPU-1": None}),
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
