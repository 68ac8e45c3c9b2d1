"""What came of a transfer is told from a kernel to who asks it, whatever it is."""

from __future__ import annotations

import pytest

from tfgpu_magic.parking.messages import ParkOutcome, Room
from tfgpu_magic.parking.refusals import CANCELLED, CHILDREN, LOST, THREADS


def test_an_outcome_is_a_line() -> None:
    said = ParkOutcome(refusals=(LOST(), CHILDREN((1, 2)), THREADS(("a",))), seconds=0.5, notes=(CANCELLED(),))

    assert "\n" not in said.to_json()
    assert ParkOutcome.from_json(said.to_json()) == said


@pytest.mark.parametrize("text", ["{}", "[]", "7", '{"refusals":[],"seconds":0}', "nonsense"])
def test_what_is_none_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a|Expecting"):
        ParkOutcome.from_json(text)


def test_what_is_missing_is_never_less_than_nothing() -> None:
    assert Room("GPU-0", "0", needed=7, free=5).short == 2
    assert Room("GPU-0", "0", needed=7, free=9).short == 0
    assert Room("GPU-0", "0", needed=7, free=None).short == 7
