"""The sentences about parking: one for every reason, and for whom and how long a cell waits."""

from __future__ import annotations

import pytest

from tests.sizes import GIB
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import refusals
from tfgpu_magic.parking.messages import ParkOutcome, Progress, Room
from tfgpu_magic.parking.reported import ParkedProcess
from tfgpu_magic.parking.states import Phase


@pytest.mark.parametrize("reason", refusals.REASONS.values(), ids=lambda reason: reason.name)
def test_every_reason_is_said_in_whole_sentences(reason: refusals.Reason) -> None:
    said = parking.reason(reason(*("An error." if field == "error" else 5 * GIB for field in reason.fields)))

    assert said[0].isupper()
    assert said.endswith(".")


def test_facts_are_said_with_their_units_and_what_is_unknown_as_that() -> None:
    assert parking.reason(refusals.HOST_MEMORY(5 * GIB, None)) == (
        "Host memory must take 5 GiB; what parking may fill of it: unknown (`tfgpu doctor` says why)."
    )
    assert "(4711, 4712)" in parking.reason(refusals.CHILDREN((4711, 4712)))
    assert parking.reason(refusals.OLD_DRIVER("", "580")).startswith("The driver's version is unknown,")
    assert parking.reason(refusals.ERROR("It\u202e hangs.")) == "It? hangs."


def test_what_the_driver_did_not_answer_is_not_said_to_go_on_as_before() -> None:
    """A process whose copy was given up is locked until it is set right."""
    assert parking.reason(refusals.UNANSWERED("checkpoint")) == (
        "The driver has not answered (checkpoint). What becomes of it is found out, and it is set right."
    )


def test_a_wait_says_for_whom_and_how_long() -> None:
    room = Room("GPU-1", "0", needed=6 * GIB, free=2 * GIB, holders=((7, 5 * GIB), (8, GIB)))
    waits = Progress(step="waits", size=5 * GIB, seconds=2.5, ahead=(9,), rooms=(room,))

    assert parking.progress(waits, {7: "eval.ipynb", 9: "first.ipynb"}) == (
        "Waiting for room. GPU 0: 6 GiB must be free, and 2 GiB are (eval.ipynb holds 5 GiB, pid 8 holds 1 GiB). "
        "first.ipynb is first. Then 5 GiB come back, about 2.5 s. "
        "To stop waiting, interrupt: nothing is lost, and it stays parked."
    )


def test_a_name_is_shown_as_harmless_text() -> None:
    waits = Progress(step="waits", ahead=(9,))

    assert "first?.ipynb" in parking.progress(waits, {9: "first\u202e.ipynb"})


def test_what_was_done_is_said_with_its_size() -> None:
    entry = ParkedProcess(pid=1, began=1, phase=Phase.PARKED, since=0.0, held=(HeldMemory("GPU-1", 5 * GIB),))

    assert parking.parked(ParkOutcome(entry=entry, seconds=1.25), "notebook") == (
        "Parked: 5 GiB of GPU memory are in host memory now. That took 1.2 s. "
        "The next cell of this notebook brings them back."
    )
    assert parking.back(ParkOutcome(entry=entry), 12.0) == "Back: 5 GiB of GPU memory, after 12.0 s."
    assert parking.other_parked(ParkOutcome(entry=entry), "eval.ipynb") == (
        "eval.ipynb is parked: 5 GiB of GPU memory are in host memory now. Its next cell brings them back."
    )
    assert parking.other_back(ParkOutcome(entry=entry), "eval.ipynb") == "eval.ipynb is back on the GPU with 5 GiB."


def test_what_was_done_without_a_record_is_said_without_a_size() -> None:
    assert parking.parked(ParkOutcome(seconds=1.25), "notebook") == (
        "Parked: what it held of the GPUs is in host memory now. That took 1.2 s. "
        "The next cell of this notebook brings it back."
    )
    assert parking.other_parked(ParkOutcome(), "eval.ipynb") == (
        "eval.ipynb is parked: what it held of the GPUs is in host memory now. Its next cell brings it back."
    )
    assert parking.back(ParkOutcome(), 12.0) == "Back: what it held of the GPUs, after 12.0 s."
    assert parking.other_back(ParkOutcome(), "eval.ipynb") == "eval.ipynb is back on the GPU."


def test_what_cannot_be_held_is_said_whole() -> None:
    found = "an event loop of another version than is known here ('uvloop.Loop')"

    assert f": {found}." in parking.reason(refusals.THREADS((found,)))


def test_no_driver_is_said_to_be_trusted_with_shared_memory() -> None:
    """It is refused on each: older ones are known to fail, and of newer ones nothing is known."""
    said = parking.reason(refusals.SHARED_MEMORY())

    assert "before 610 do not survive" in said
    assert "newer ones are not trusted" in said
