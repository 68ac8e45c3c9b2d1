"""What came of a transfer is told from a kernel to who asks it, whatever it is."""

from __future__ import annotations

import json

from tfgpu_magic.parking.messages import ANSWER, ParkOutcome, Room
from tfgpu_magic.parking.refusals import CANCELLED, CHILDREN, LOST, THREADS


def test_an_outcome_is_told_as_what_json_can_hold() -> None:
    said = ParkOutcome(refusals=(LOST(), CHILDREN((1, 2)), THREADS(("a",))), notes=(CANCELLED(),))
    told = json.loads(json.dumps(said._repr_mimebundle_()))

    assert ParkOutcome.from_answer(told[ANSWER]) == said


def test_what_is_missing_is_never_less_than_nothing() -> None:
    assert Room("GPU-0", "0", needed=7, free=5).short == 2
    assert Room("GPU-0", "0", needed=7, free=9).short == 0
    assert Room("GPU-0", "0", needed=7, free=None).short == 7
