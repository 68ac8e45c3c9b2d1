"""What the helper and those who ask it say travels in lines, and comes out as it went in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parking.test_record import ENTRIES
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.messages import ParkOutcome, Progress, Request, Room, reply
from tfgpu_magic.parking.record import ParkedProcess
from tfgpu_magic.parking.refusals import CHILDREN, LOST, THREADS

SIZES = st.integers(0, 2**40)
REQUESTS = st.builds(
    Request,
    deed=st.sampled_from(["park", "unpark", "check"]),
    pid=st.none() | st.integers(1),
    name=st.text(),
    inside=st.none() | st.builds(Inside, busy=st.booleans(), threads=st.lists(st.text()).map(tuple)),
    held=st.lists(st.builds(HeldMemory, st.text(), SIZES)).map(tuple),
)
ROOMS = st.builds(
    Room, st.text(), st.text(), SIZES, st.none() | SIZES, st.lists(st.tuples(SIZES, st.none() | SIZES)).map(tuple)
)


@given(REQUESTS)
def test_a_request_is_a_line(request: Request) -> None:
    line = request.to_line()

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert Request.from_line(line) == request


@given(
    st.lists(ROOMS).map(tuple),
    st.lists(SIZES).map(tuple),
    st.none() | st.floats(0, 1e6),
)
def test_progress_is_a_line(rooms: tuple[Room, ...], ahead: tuple[int, ...], seconds: float | None) -> None:
    said = Progress(step="waits", size=7, seconds=seconds, ahead=ahead, rooms=rooms)

    assert reply(said.to_line()) == said


@given(st.none() | ENTRIES)
def test_an_outcome_is_a_line(entry: ParkedProcess | None) -> None:
    said = ParkOutcome(entry=entry, refusals=(LOST(), CHILDREN((1, 2)), THREADS(("a",))), seconds=0.5)

    assert reply(said.to_line()) == said


@pytest.mark.parametrize("line", [b"{}", b"[]", b"7", b'{"outcome":{}}', b'{"progress":{}}', b"nonsense"])
def test_what_is_neither_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a reply|Expecting value"):
        reply(line)


def test_room_that_is_missing_is_counted() -> None:
    assert Room("GPU-0", "0", 5, 3).short == 2
    assert Room("GPU-0", "0", 5, 9).short == 0
    assert Room("GPU-0", "0", 5, None).short == 5
