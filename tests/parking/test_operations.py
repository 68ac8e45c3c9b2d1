"""What the helper does for who asks it: parks a process, brings it back, and says why not, on a made-up driver."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from tests.parking.house import ADOPT, PARK, QUICK, UNPARK, House
from tests.parking.made_up import HELD, TOTAL, me
from tests.sizes import GIB
from tfgpu_magic.isolate import host_memory
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.parking import RECORD, checks
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.driver import OUT_OF_MEMORY
from tfgpu_magic.parking.driver_workers import OpenRequest
from tfgpu_magic.parking.messages import ParkOutcome, Progress, Request, reply
from tfgpu_magic.parking.record import ParkedProcess
from tfgpu_magic.parking.states import CudaState, Phase


def test_what_must_not_be_parked_is_not_touched(house: House) -> None:
    request = Request(deed="park", inside=Inside(busy=True))
    outcome = asyncio.run(house.do(request))

    assert outcome.refusals == (why.BUSY(),)
    assert (set(house.driver.calls), house.phase) == ({"snapshot"}, None)


def test_what_becomes_wrong_after_the_lock_is_unlocked(house: House) -> None:
    """What is said when nothing can change any more counts."""
    with pytest.MonkeyPatch.context() as patch:  # undone before the house's own, which it covers

        def at(number: int, call: str) -> None:
            if call == "lock":
                patch.setattr(host_memory, "untouched", lambda _: GIB)

        house.driver.at = at
        outcome = asyncio.run(house.do(PARK))

    assert outcome.refusals == (why.HOST_MEMORY(HELD + checks.HOST_MARGIN, GIB),)
    assert (house.driver.state, house.phase) == (CudaState.RUNNING, None)


@pytest.mark.parametrize("during", ["state", "lock"])
def test_who_calls_it_off_before_the_copy_has_the_process_as_it_was(house: House, during: str) -> None:
    asked = OpenRequest(PARK, me())
    house.driver.at = lambda _, call: asked.call_off() if call == during else None
    outcome = asyncio.run(house.do(PARK, asked))

    assert outcome.refusals == (why.CANCELLED(),)
    assert (house.driver.state, house.phase) == (CudaState.RUNNING, None)
    assert "checkpoint" not in house.driver.calls


def test_who_asks_again_while_a_copy_is_under_way_is_told_when_it_is_done(house: House) -> None:
    """The helper that had begun has died, and the driver answers nothing about the process until then."""

    async def story() -> ParkOutcome:
        pid, start = me()
        begun = ParkedProcess(pid=pid, began=start, phase=Phase.LOCKING, since=1.0, held=(HeldMemory("GPU-0", HELD),))
        house.ledger.move(house.ledger.begin(begun), Phase.CHECKPOINTING)
        house.driver.state = CudaState.CHECKPOINTED
        house.driver.script = {0: "hung before"}
        house.start(replace(QUICK, copy=60.0))
        return await house.do(PARK)

    assert asyncio.run(story()).done
    assert (house.phase, house.driver.state) == (Phase.PARKED, CudaState.CHECKPOINTED)


def test_who_calls_it_off_while_it_is_set_right_is_told_just_that(house: House) -> None:
    """Nothing is said of a driver that did not answer: nobody has waited for it."""

    def tell(said: Progress) -> None:
        if said.step == "settles":
            asked.call_off()

    async def story() -> ParkOutcome:
        gone = await house.do(PARK)
        assert gone.entry is not None
        house.ledger.move(gone.entry, Phase.RESTORING)
        house.driver.script = dict.fromkeys(range(99), "hung before")
        house.start(replace(QUICK, copy=60.0))
        return await house.do(UNPARK, asked)

    asked = OpenRequest(UNPARK, me(), tell)

    assert asyncio.run(story()).refusals == (why.CANCELLED(),)


def test_room_that_is_taken_before_the_placeholder_is_waited_for_again(house: House) -> None:
    """The placeholder decides, not what the driver said a moment before."""

    def at(number: int, call: str) -> None:
        if call == "take":
            house.driver.others = 6 * GIB if "take" not in house.driver.calls else 0

    def tell(said: Progress) -> None:
        if said.step == "waits":
            house.driver.others = 0

    async def story() -> ParkOutcome:
        await house.do(PARK)
        house.driver.at = at
        return await house.do(UNPARK, OpenRequest(UNPARK, me(), tell))

    assert asyncio.run(story()).done
    assert house.driver.calls.count("take") == 2
    assert not house.driver.restored_without_room


def test_figures_that_cannot_be_had_are_not_taken_for_a_gpu_that_is_gone(house: House) -> None:
    async def story() -> list[Progress]:
        await house.do(PARK)
        house.driver.error = "NVML does not answer."
        said: list[Progress] = []
        coming = asyncio.ensure_future(house.do(UNPARK, OpenRequest(UNPARK, me(), said.append)))
        while not said:
            await asyncio.sleep(0.01)
        house.driver.error = None
        assert (await coming).done
        return said

    first = asyncio.run(story())[0]

    assert (first.trouble, first.rooms) == (why.NO_DRIVER("NVML does not answer."), ())
    assert "not there now" not in parking.progress(first, {})
    assert reply(first.to_line()) == first


def test_room_that_is_not_given_is_said_and_tried_for_more_and_more_rarely(house: House) -> None:
    async def story() -> list[Progress]:
        await house.do(PARK)
        house.driver.kept = TOTAL
        said: list[Progress] = []
        asked = OpenRequest(UNPARK, me(), said.append)
        coming = asyncio.ensure_future(house.do(UNPARK, asked))
        await asyncio.sleep(1)
        while house.driver.calls.count("take") < 2:
            await asyncio.sleep(0.01)
        tried = house.driver.calls.count("take")
        house.driver.kept = 0
        assert (await coming).done
        assert 1 < tried <= 8
        return said

    waits = next(one for one in asyncio.run(story()) if one.step == "waits")

    assert waits.trouble == why.NOT_GIVEN("cuMemAlloc_v2", OUT_OF_MEMORY)
    assert "not its turn" not in parking.progress(waits, {})
    assert reply(waits.to_line()) == waits


@pytest.mark.parametrize("state", [CudaState.RUNNING, CudaState.LOCKED])
def test_what_another_program_has_brought_back_waits_for_no_room(house: House, state: CudaState) -> None:
    """With NVIDIA's `cuda-checkpoint`, say: its own memory is what fills the GPU."""

    async def story() -> ParkOutcome:
        await house.do(PARK)
        house.driver.state, house.driver.others = state, TOTAL - HELD
        return await house.do(UNPARK)

    assert asyncio.run(story()).done
    assert (house.phase, house.driver.state) == (Phase.BACK, CudaState.RUNNING)


@pytest.mark.parametrize("state", [CudaState.CHECKPOINTED, CudaState.LOCKED])
def test_a_helper_whose_record_is_lost_takes_the_process_for_what_its_owner_says(
    house: House, state: CudaState
) -> None:
    """The worker of a helper that dies ends the restore, and unlocks nothing."""

    async def story() -> ParkOutcome:
        gone = await house.do(PARK)
        assert gone.entry is not None
        house.place.remove(RECORD)
        house.start()
        house.driver.state = state
        assert (await house.do(UNPARK)).refusals == (why.NOT_PARKED(),)  # it could be another program's lock
        assert house.driver.state is state
        return await house.do(Request(deed="unpark", held=gone.entry.held))

    outcome = asyncio.run(story())

    assert outcome.done
    assert outcome.entry is not None
    assert (outcome.entry.phase, outcome.entry.returns) == (Phase.BACK, 1)
    assert house.driver.state is CudaState.RUNNING


def test_an_unknown_process_that_has_failed_is_lost(house: House) -> None:
    house.driver.state = CudaState.FAILED

    assert asyncio.run(house.do(ADOPT)).refusals == (why.LOST(),)


@pytest.mark.parametrize("event", ["hung before", "died before"])
def test_of_an_unknown_process_whose_restore_may_be_under_way_it_is_not_said_that_it_is_not_parked(
    house: House, event: str
) -> None:
    """The driver answers nothing about it as long as it copies."""
    house.driver.state = CudaState.LOCKED
    house.driver.script = {0: event}
    (refusal,) = asyncio.run(house.do(ADOPT)).refusals

    assert refusal.reason is why.UNANSWERED
    assert asyncio.run(house.do(ADOPT)).done


def test_what_comes_back_claims_its_room_only_while_it_takes_it(house: House) -> None:
    claims = []

    def at(number: int, call: str) -> None:
        with house.waiting._table.turn() as page:
            claims.append((call, [(one.gpu, one.size, one.pid) for one in page.leased()]))

    async def story() -> None:
        await house.do(PARK)
        house.driver.at = at
        await house.do(UNPARK)

    asyncio.run(story())
    claimed = [("GPU-0", HELD + checks.ROOM_MARGIN, os.getpid())]

    assert {call for call, found in claims if found == claimed} == {"take", "state", "restore", "unlock", "let_go"}
    with house.waiting._table.turn() as page:
        assert not page.entries
