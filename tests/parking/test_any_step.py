"""Whatever becomes of any call, the process is set right: never locked, never lost that could be saved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parking.house import House, parkable
from tests.parking.made_up import EVENTS, HELD, Driver
from tfgpu_magic.parking.states import CudaState, Phase


@given(
    st.dictionaries(st.integers(0, 30), st.sampled_from(EVENTS), max_size=4),
    st.lists(st.sampled_from(["park", "unpark", "settle"]), min_size=1, max_size=6),
)
def test_whatever_becomes_of_any_call_nothing_stays_locked_and_nothing_is_lost(
    script: dict[int, str], deeds: list[str]
) -> None:
    with parkable():
        house = House(Driver(script=script))
        for deed in deeds:
            doing: dict[str, Callable[[], object]]
            doing = {"park": house.park, "unpark": house.unpark, "settle": house.state.settle}
            doing[deed]()
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


CALLS = {
    "park": ["snapshot", "state", "lock", "snapshot", "checkpoint"],
    "unpark": ["state", "snapshot", "take", "state", "restore", "unlock", "let_go"],
}
"""The calls of parking and of coming back, in their order."""

EVERY_STEP = [(deed, number, event) for deed in CALLS for number in range(len(CALLS[deed])) for event in EVENTS]
"""Each of them with everything that may become of it."""


def test_these_are_the_calls(house: House) -> None:
    house.park()
    assert house.driver.calls == CALLS["park"]
    house.unpark()
    assert house.driver.calls == CALLS["park"] + CALLS["unpark"]


@pytest.mark.parametrize(("deed", "step", "event"), EVERY_STEP)
def test_the_worker_s_death_at_any_step_is_set_right_by_the_next_worker(
    house: House, deed: str, step: int, event: str
) -> None:
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
