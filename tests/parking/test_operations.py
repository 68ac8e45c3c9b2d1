"""What is done for who asks for it: the process is parked, brought back, or it is said why not, on a made-up driver."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tests.parking.conftest import Asking
from tests.parking.house import HELD, IDLE, QUICK, TOTAL, House
from tests.sizes import GIB, MIB
from tests.waiting import until
from tfgpu_magic.leases.lease_file import ABSENT
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.parking import answers as parking
from tfgpu_magic.parking import ask_kernel, checks, facts, gpu_state, transfers
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.driver import OUT_OF_MEMORY, serve
from tfgpu_magic.parking.gpu_state import Asker, Timeouts
from tfgpu_magic.parking.messages import ParkOutcome, Progress
from tfgpu_magic.parking.reported import ParkedProcess
from tfgpu_magic.parking.states import CudaState, Phase
from tfgpu_magic.parking.transfers import Park
from tfgpu_magic.probe import within


def test_what_must_not_be_parked_is_not_touched(house: House) -> None:
    assert house.park(inside=Inside(against=(why.BUSY(),))).refusals == (why.BUSY(),)
    assert (set(house.driver.calls), house.phase) == ({"snapshot"}, None)


def test_what_is_missing_for_the_way_back_is_said_and_keeps_from_it_what_nobody_has_asked_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "owned", lambda _: True)  # what the others hold, their user can give back
    house.driver.others = TOTAL - HELD - 100 * MIB
    refused = transfers.Park(house.state, IDLE, unasked=True).park().refusals
    parked = transfers.Park(house.state, IDLE).park()

    assert [one.reason for one in refused] == [why.MORE_NEEDED]
    assert (parked.done, parked.notes) == (True, refused)


def test_what_becomes_wrong_after_the_lock_is_unlocked(house: House) -> None:
    """What is said when nothing can change any more counts."""
    with pytest.MonkeyPatch.context() as patch:  # undone before the house's own, which it covers

        def at(number: int, call: str) -> None:
            if call == "lock":
                patch.setattr(facts, "host_room", lambda _: GIB)

        house.driver.at = at
        outcome = house.park()

    assert outcome.refusals == (why.HOST_MEMORY(HELD, GIB),)
    assert (house.driver.state, house.phase) == (CudaState.RUNNING, None)


@pytest.mark.parametrize("during", ["state", "lock"])
def test_who_calls_it_off_before_the_copy_has_the_process_as_it_was(house: House, during: str) -> None:
    off = threading.Event()
    house.driver.at = lambda _, call: off.set() if call == during else None
    outcome = house.park(Asker(wanted=lambda: not off.is_set()))

    assert outcome.refusals == (why.CANCELLED(),)
    assert (house.driver.state, house.phase) == (CudaState.RUNNING, None)
    assert "checkpoint" not in house.driver.calls


def test_the_last_act_of_a_process_starts_no_thread(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on none can be started by then."""
    house.park()
    house.unpark()

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)

    assert Park(house.state, None).park().done


def test_the_last_act_of_a_process_parks_it_though_another_look_into_a_process_hangs(house: House) -> None:
    house.park()
    house.unpark()
    over = threading.Event()
    assert within(0.0, over.wait) is None
    refused, parked = house.park().refusals, Park(house.state, None).park()
    over.set()
    until(lambda: within(60.0, lambda: True))  # it hangs no more

    assert refused == (why.UNANSWERED("/proc"),)
    assert (parked.done, house.driver.state) == (True, CudaState.CHECKPOINTED)


@pytest.mark.parametrize("declined", ["lock", "checkpoint"])
def test_what_is_declined_and_not_told_of_afterwards_is_waited_for_no_longer_than_an_answer(
    house: House, declined: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that runs the cells waits for it, and in the last act nobody can call it off."""
    clock, make = [0.0], house.driver.make

    def made(call: str, *arguments: Any) -> Any:
        return CudaState.UNKNOWN if call == "state" and house.phase is not None else make(call, *arguments)

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    house.driver.make = made  # type: ignore[method-assign]
    house.driver.script = {["snapshot", "state", "lock", "snapshot", "checkpoint"].index(declined): "declined"}
    house.state.timeouts = Timeouts()
    clocks = SimpleNamespace(time=time.time, monotonic=lambda: clock[0], sleep=sleep)
    monkeypatch.setattr(gpu_state, "time", clocks)

    assert house.park().refusals == (why.DECLINED(declined, 801),)
    assert clock[0] < 2 * house.state.timeouts.state


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("python -m ipykernel_launcher -f /run/kernel-1.json", "/run/kernel-1.json"),
        ("python -m ipykernel_launcher --f=/run/kernel-2.json", "/run/kernel-2.json"),
        ("python -m colab_kernel_launcher -f /root/kernel-3.json", "/root/kernel-3.json"),
        ("python -m ipykernel_launcher --IPKernelApp.connection_file=/run/a=b/4.json", "/run/a=b/4.json"),
        ("python -m ipykernel_launcher --config=/etc/k.json -f /home/a=b/kernel-5.json", "/home/a=b/kernel-5.json"),
        ("xpython --log=debug /run/kernel-6.json", "/run/kernel-6.json"),
        ("python -m ipykernel_launcher", None),
    ],
)
def test_a_kernels_connection_file_is_on_its_command_line(words: str, path: str | None) -> None:
    found = ask_kernel._connection_file(words.split())

    assert (None if found is None else str(found)) == path


def test_who_asks_a_parked_notebook_that_hears_nothing_is_told_that_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of it waits for room meanwhile."""
    entry = ParkedProcess(pid=7, phase=Phase.PARKED, since=1.0, wanted=True)
    monkeypatch.setattr(ask_kernel, "parked", lambda _: entry)
    monkeypatch.setattr(ask_kernel, "_answers", lambda *_: iter([None, None]))
    monkeypatch.setattr(ask_kernel, "ANSWER_TIMEOUT", -60.0)

    assert ask_kernel.ask(7, "park") == ParkOutcome(entry=entry)


def test_how_long_a_way_takes_is_told_by_the_last_time(house: House) -> None:
    assert house.state.seconds("restore", 2 * 10**9) == 2.0  # planned
    house.park()

    assert house.state.seconds("restore", HELD) == house.state.seconds("checkpoint", HELD) != HELD / 1e9
    house.unpark()
    assert set(house.state._rates) == {"checkpoint", "restore"}


def test_a_copy_whose_worker_died_is_asked_for_once_and_as_long_as_it_may_take(house: House) -> None:
    """The driver completes it, and answers nothing about the process until then."""
    house.state.timeouts = replace(QUICK, copy=60.0)
    house.driver.script = {4: "died after"}

    assert house.park().done
    assert (house.phase, house.driver.state) == (Phase.PARKED, CudaState.CHECKPOINTED)
    assert house.driver.patience == [QUICK.state, pytest.approx(60.0, abs=1.0)]


def test_a_state_that_is_not_known_here_is_asked_for_again(house: House) -> None:
    """Newer drivers have more: 4 and 5 while they copy."""
    unknown = iter([True, True])
    make = house.driver.make

    def newer(call: str, *arguments: object) -> object:
        asked = call == "state" and house.phase is Phase.CHECKPOINTING
        return CudaState.UNKNOWN if asked and next(unknown, False) else make(call, *arguments)

    house.driver.make = newer  # type: ignore[method-assign]
    house.driver.script = {4: "died after"}

    assert not house.park().done
    assert house.phase is Phase.CHECKPOINTING
    assert house.unpark().done


def test_who_calls_it_off_while_it_is_set_right_is_told_just_that(house: House) -> None:
    """Nothing is said of a driver that did not answer: nobody has waited for it."""
    off = threading.Event()
    house.park()
    house.state.move(Phase.RESTORING)
    house.driver.script = dict.fromkeys(range(99), "hung before")
    house.state.timeouts = replace(QUICK, copy=60.0)

    def tell(said: Progress) -> None:
        if said.step == "settles":
            off.set()

    assert house.unpark(Asker(tell, lambda: not off.is_set())).refusals == (why.CANCELLED(),)


def test_who_comes_second_waits_for_its_turn_and_may_go(house: House) -> None:
    house.park()
    house.driver.others = TOTAL
    first_off, second_off = threading.Event(), threading.Event()
    first = Asking(house.unpark, Asker(wanted=lambda: not first_off.is_set()))
    until(lambda: "snapshot" in house.driver.calls[5:])
    second = Asking(house.unpark, Asker(wanted=lambda: not second_off.is_set()))
    second_off.set()

    assert second.outcome().refusals == (why.CANCELLED(),)
    assert not first.done
    first_off.set()
    assert first.outcome().refusals == (why.CANCELLED(),)


def test_room_that_is_taken_before_the_placeholder_is_waited_for_again(house: House) -> None:
    """The placeholder decides, not what the driver said a moment before."""

    def at(number: int, call: str) -> None:
        if call == "take":
            house.driver.others = 6 * GIB if "take" not in house.driver.calls else 0

    def tell(said: Progress) -> None:
        if said.step == "waits":
            house.driver.others = 0

    house.park()
    house.driver.at = at

    assert house.unpark(Asker(tell)).done
    assert house.driver.calls.count("take") == 2
    assert not house.driver.restored_without_room


def test_figures_that_cannot_be_had_are_not_taken_for_a_gpu_that_is_gone(house: House) -> None:
    said: list[Progress] = []

    def tell(progress: Progress) -> None:
        said.append(progress)
        house.driver.error = None

    house.park()
    house.driver.error = "NVML does not answer."

    assert house.unpark(Asker(tell)).done
    assert (said[0].trouble, said[0].rooms) == (why.NO_DRIVER("NVML does not answer."), ())
    assert "not there now" not in parking.progress(said[0], {})


def test_room_that_is_not_given_is_said_and_tried_for_more_and_more_rarely(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, pauses = list[Progress](), list[float]()

    def pause(_: Asker, seconds: float) -> None:
        pauses.append(seconds)
        house.driver.kept = TOTAL if len(pauses) < 12 else 0

    monkeypatch.setattr(Asker, "pause", pause)
    house.park()
    house.driver.kept = TOTAL
    coming = house.unpark(Asker(said.append))
    waits = next(one for one in said if one.step == "waits")

    assert coming.done
    assert (len(pauses), pauses[-1]) == (12, transfers._AGAIN)
    assert all(later >= min(2 * earlier, transfers._AGAIN) for earlier, later in pairwise(pauses))
    assert waits.trouble == why.NOT_GIVEN("cuMemAlloc_v2", OUT_OF_MEMORY)
    assert "not its turn" not in parking.progress(waits, {})


@pytest.mark.parametrize("state", [CudaState.RUNNING, CudaState.LOCKED])
def test_what_another_program_has_brought_back_waits_for_no_room(house: House, state: CudaState) -> None:
    """With NVIDIA's `cuda-checkpoint`, say: its own memory is what fills the GPU."""
    house.park()
    house.driver.state, house.driver.others = state, TOTAL - HELD

    assert house.unpark().done
    assert (house.phase, house.driver.state) == (Phase.BACK, CudaState.RUNNING)


def test_who_waits_for_long_looks_more_rarely_and_keeps_its_turn() -> None:
    looks = [Timeouts().waiting(waited) for waited in (0.0, 20.0, 90.0, 1e6)]

    assert looks == [0.5, 0.5, 1.5, 2.0]
    assert max(looks) < ABSENT / 2


def test_what_comes_back_claims_its_room_only_while_it_takes_it(house: House) -> None:
    claims = []

    def at(number: int, call: str) -> None:
        with house.table.turn() as page:
            claims.append((call, [(one.gpu, one.size, one.pid) for one in page.leased()]))

    house.park()
    house.driver.at = at
    house.unpark()
    claimed = [("GPU-0", HELD + checks.ROOM_MARGIN, os.getpid())]

    assert {call for call, found in claims if found == claimed} == {"take", "state", "restore", "unlock", "let_go"}
    with house.table.turn() as page:
        assert not page.entries


def test_room_stays_claimed_until_it_is_known_what_became_of_the_restore(house: House) -> None:
    """A worker that was given up may still be in it."""
    house.park()
    house.driver.script = {9: "hung before", 10: "hung before"}
    assert not house.unpark().done

    assert house.phase is Phase.RESTORING
    with house.table.turn() as page:
        assert page.leased()
    house.state.settle()
    with house.table.turn() as page:
        assert not page.entries


def test_one_thread_sees_to_what_is_not_known_whatever_goes_wrong_in_it(house: House) -> None:
    house.park()
    house.state.move(Phase.RESTORING)
    house.state.rest()
    works, start = threading.Event(), house.state._start

    def started() -> object:
        if not works.is_set():
            raise NotImplementedError
        return start()

    house.state._start = started  # type: ignore[assignment]
    before = set(threading.enumerate())
    for _ in range(3):
        house.state.attend()

    begun = [thread.name for thread in set(threading.enumerate()) - before]
    assert begun.count("tfgpu_magic-settle") == 1
    works.set()
    until(lambda: house.phase is Phase.PARKED)


def test_a_worker_is_there_as_long_as_the_state_is_away(house: House) -> None:
    assert house.park().done
    assert house.state.worker().usable
    house.unpark()

    assert house.state._worker is None


def test_each_step_is_posted_before_the_call_that_it_names(house: House) -> None:
    posted: list[tuple[Phase, int]] = []

    def post(known: ParkedProcess | None) -> None:
        assert known is not None
        posted.append((known.phase, len(house.driver.calls)))

    house.state._changed = post
    house.park()
    house.unpark()

    assert posted == [
        (Phase.LOCKING, 2), (Phase.CHECKPOINTING, 4), (Phase.PARKED, 5),
        (Phase.RESTORING, 9), (Phase.UNLOCKING, 10), (Phase.BACK, 11),
    ]  # fmt: skip
    assert house.state.known is not None
    assert house.state.known.held == (HeldMemory("GPU-0", HELD),)


FILE = "/proc/7/fd/3"


@pytest.mark.parametrize(
    ("calls", "ends", "made"),
    [
        ([("lock", 7, 1.0), ("checkpoint", 7)], "checkpoint", ["lock", "checkpoint", "unlock", "let_go"]),
        ([("lock", 7, 1.0)], "lock", ["lock", "unlock", "let_go"]),  # a signal, before that is told
        ([("restore", 7, FILE)], "restore", ["restore", "let_go"]),  # it would go on with half of its memory
        ([("restore", 7, FILE)], "", ["restore", "unlock", "let_go"]),
    ],
)
def test_whatever_ends_a_worker_what_it_has_locked_is_unlocked_and_nothing_that_is_half_restored(
    calls: list[tuple[Any, ...]], ends: str, made: list[str]
) -> None:
    done: list[str] = []

    def call(name: str, *_: object) -> None:
        done.append(name)
        if name == ends:
            raise SystemExit

    names = ("lock", "checkpoint", "restore", "unlock", "let_go")
    driver: Any = SimpleNamespace(**{name: partial(call, name) for name in names})
    orders = [json.dumps({"call": name, "arguments": arguments, "seconds": 60}) for name, *arguments in calls]
    with contextlib.suppress(SystemExit):
        serve(driver, orders, StringIO())

    assert done == made
