"""Whatever becomes of any call, the process is set right: never locked, never lost that could be saved."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.parking.house import PARK, UNPARK, House, parkable
from tests.parking.made_up import EVENTS, HELD, Driver, me
from tfgpu_magic.parking.states import CudaState, Phase


@given(
    st.dictionaries(st.integers(0, 30), st.sampled_from(EVENTS), max_size=4),
    st.lists(st.sampled_from(["park", "unpark", "restart", "settle"]), min_size=1, max_size=6),
)
def test_whatever_becomes_of_any_call_nothing_stays_locked_and_nothing_is_lost(
    script: dict[int, str], deeds: list[str]
) -> None:
    with parkable(), tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)
        house = House(Driver(script=script), folder)

        async def story() -> None:
            for deed in deeds:
                if deed == "restart":
                    house.start()
                elif deed == "settle":
                    await house.operations.settle(me())
                else:
                    await house.do(PARK if deed == "park" else UNPARK)
            house.start()
            house.driver.script.clear()
            await house.operations.settle(me())
            settled = (house.phase, house.driver.state)
            assert settled in [
                (None, CudaState.RUNNING), (Phase.BACK, CudaState.RUNNING), (Phase.PARKED, CudaState.CHECKPOINTED),
            ]  # fmt: skip
            assert house.driver.taken == 0
            assert not house.driver.restored_without_room
            if house.phase is Phase.PARKED:
                assert (await house.do(UNPARK)).done
                assert (house.phase, house.driver.state) == (Phase.BACK, CudaState.RUNNING)

        try:
            asyncio.run(story())
        finally:
            house.close()


CALLS = {
    "park": ["snapshot", "state", "lock", "snapshot", "checkpoint"],
    "unpark": ["state", "snapshot", "take", "state", "restore", "unlock", "let_go"],
}
"""The calls of parking and of coming back, in their order."""

EVERY_STEP = [(deed, number, event) for deed in CALLS for number in range(len(CALLS[deed])) for event in EVENTS]
"""Each of them with everything that may become of it."""


def test_these_are_the_calls(house: House) -> None:
    async def story() -> None:
        await house.do(PARK)
        assert house.driver.calls == CALLS["park"]
        await house.do(UNPARK)

    asyncio.run(story())
    assert house.driver.calls == CALLS["park"] + CALLS["unpark"]


@pytest.mark.parametrize("restart", [False, True], ids=["same", "next"])
@pytest.mark.parametrize(("deed", "step", "event"), EVERY_STEP)
def test_a_death_at_any_step_is_set_right_by_the_same_helper_and_by_the_next(
    house: House, deed: str, step: int, event: str, restart: bool
) -> None:
    async def story() -> None:
        if deed == "unpark":
            await house.do(PARK)
        first = len(house.driver.calls)
        house.driver.script = {first + step: event}
        request: Any = PARK if deed == "park" else UNPARK
        outcome = await house.do(request)
        if restart:
            house.start()
        await house.operations.settle(me())

        assert house.driver.state in (CudaState.RUNNING, CudaState.CHECKPOINTED)
        assert house.phase in (None, Phase.BACK, Phase.PARKED)
        assert (house.phase is Phase.PARKED) == (house.driver.state is CudaState.CHECKPOINTED)
        if outcome.done:
            assert (house.driver.state is CudaState.CHECKPOINTED) == (deed == "park")
        assert house.driver.held + house.driver.taken in (0, HELD)

    asyncio.run(story())
