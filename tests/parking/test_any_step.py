"""Whatever becomes of any call, and is found then, the process is set right: never locked, nor lost for nothing."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parking.house import EVENTS, HELD, Driver, House, parkable
from tfgpu_magic.parking.states import UNSETTLED, CudaState, Phase, reconcile


@given(
    st.dictionaries(st.integers(0, 30), st.sampled_from(EVENTS), max_size=4),
    st.lists(st.sampled_from([House.park, House.unpark, lambda house: house.state.settle()]), min_size=1, max_size=6),
)
def test_whatever_becomes_of_a_call_nothing_stays_locked_or_is_lost(script: dict[int, str], deeds: list[Any]) -> None:
    with parkable():
        house = House(Driver(script=script))
        for deed in deeds:
            deed(house)
        house.driver.script.clear()
        house.state.settle()
        assert (house.phase, house.driver.state) in [
            (None, CudaState.RUNNING), (Phase.BACK, CudaState.RUNNING), (Phase.PARKED, CudaState.CHECKPOINTED),
        ]  # fmt: skip
        assert house.driver.taken == 0
        assert not house.driver.restored_without_room
        if house.phase is Phase.PARKED:
            assert house.unpark().done
            assert (house.phase, house.driver.state) == (Phase.BACK, CudaState.RUNNING)


CALLS = {  # of parking and of coming back, in their order
    "park": ["snapshot", "state", "lock", "snapshot", "checkpoint"],
    "unpark": ["state", "snapshot", "take", "state", "restore", "unlock", "let_go"],
}

STEPS = [(deed, number) for deed in CALLS for number in range(len(CALLS[deed]))]


def test_these_are_the_calls(house: House) -> None:
    house.park()
    assert house.driver.calls == CALLS["park"]
    house.unpark()
    assert house.driver.calls == CALLS["park"] + CALLS["unpark"]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize(("deed", "step"), STEPS)
def test_a_workers_death_at_any_step_is_set_right_by_the_next(house: House, deed: str, step: int, event: str) -> None:
    if deed == "unpark":
        house.park()
    first = len(house.driver.calls)
    house.driver.script = {first + step: event}
    outcome = house.park() if deed == "park" else house.unpark()
    assert house.driver.calls[first : first + step + 1] == CALLS[deed][: step + 1]  # the step was met
    house.state.settle()

    assert house.driver.state in (CudaState.RUNNING, CudaState.CHECKPOINTED)
    assert house.phase in (None, Phase.BACK, Phase.PARKED)
    assert (house.phase is Phase.PARKED) == (house.driver.state is CudaState.CHECKPOINTED)
    if outcome.done:
        assert (house.driver.state is CudaState.CHECKPOINTED) == (deed == "park")
    assert house.driver.held + house.driver.taken in (0, HELD)
    assert not house.driver.restored_without_room


# --- what is done about what is found ---


def test_what_the_driver_says_decides_and_what_has_failed_is_not_taken_for_parked() -> None:
    for phase in Phase:
        assert reconcile(phase, CudaState.UNKNOWN) is phase  # which is asked again
        assert reconcile(phase, CudaState.FAILED) is Phase.FAILED
        away = reconcile(phase, CudaState.CHECKPOINTED)  # until it is wanted
        assert away is (Phase.FAILED if phase is Phase.FAILED else Phase.PARKED)


def test_a_process_that_runs_is_known_to_have_been_away_unless_it_surely_was_not() -> None:
    others = [phase for phase in Phase if phase is not Phase.LOCKING]
    for found in (CudaState.RUNNING, CudaState.NO_CUDA):
        assert reconcile(Phase.LOCKING, found) is None
        assert reconcile(Phase.LOCKING, found, returned=True) is Phase.BACK
    assert {reconcile(phase, CudaState.RUNNING) for phase in others} == {Phase.BACK}
    assert {phase: reconcile(phase, CudaState.NO_CUDA) for phase in others} == {phase: phase for phase in others}


def test_what_is_known_is_settled() -> None:
    known = (CudaState.RUNNING, CudaState.CHECKPOINTED, CudaState.FAILED)
    every = product(Phase, known, [False, True])

    assert not UNSETTLED & {reconcile(phase, found, returned=returned) for phase, found, returned in every}
