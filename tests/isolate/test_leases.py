"""Which calls get which GPUs when: the order of those that wait, drivers that hang, and calls within calls."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from tests.isolate.callers import NOTHING, Caller, machine, two_gpus, waits
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.config.parser import parse
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import offer
from tfgpu_magic.isolate.lease_file import ABSENT, Entry, LeaseTable, Page
from tfgpu_magic.isolate.leases import Leases
from tfgpu_magic.isolate.process import inside
from tfgpu_magic.monitor.pids import began
from tfgpu_magic.monitor.snapshot import Process, Snapshot

__all__ = ["two_gpus"]  # the fixture


def test_those_who_wait_for_the_same_are_served_in_the_order_in_which_they_came(two_gpus: Leases) -> None:
    callers = []
    for number in range(10):
        callers.append(Caller(two_gpus, str(number)))
        waits(two_gpus, number + 1)

    for number in range(8):
        callers[number].end()
        until(partial(getattr, callers[number + 2], "has"))
        assert not any(caller.has for caller in callers[number + 3 :])
    for caller in callers[8:]:
        caller.end()


def test_who_needs_two_gpus_is_not_passed_for_ever_by_those_who_need_one(two_gpus: Leases) -> None:
    first, second = Caller(two_gpus, "first"), Caller(two_gpus, "second")
    until(lambda: first.has and second.has)
    both = Caller(two_gpus, "both", gpus=2)
    waits(two_gpus, 3)
    late = Caller(two_gpus, "late")
    waits(two_gpus, 4)
    first.end()
    time.sleep(0.5)  # in which it would get the GPU that is free

    assert not late.has
    second.end()
    until(lambda: both.has)
    assert not late.has
    both.end()
    until(lambda: late.has)
    late.end()


def test_a_driver_that_was_slow_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([Snapshot(time=time.time(), error="NVML did not answer within 1.5 s."), machine(1)])
    monkeypatch.setattr(offer, "look", lambda *_: next(seen))

    with Leases(LeaseTable()).lease(NOTHING, None) as lease:
        assert [device.gpu.index for device in lease.devices] == [0]


def test_a_driver_that_does_not_answer_is_not_the_absence_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offer, "look", lambda *_: Snapshot(time=time.time(), error="NVML hangs."))
    led = Leases(LeaseTable())

    with pytest.raises(Refused, match=r"(?s)NVML hangs\..*gpus=0"):
        led.survey(NOTHING, None)
    with pytest.raises(Refused, match=r"NVML hangs\."), led.lease(NOTHING, None):
        pass


def test_no_gpu_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offer, "look", lambda *_: Snapshot(time=time.time(), error="No driver.", absent=True))
    led = Leases(LeaseTable())

    assert led.survey(NOTHING, None) is None
    with led.lease(NOTHING, None) as lease:
        assert lease.devices == ()


def test_a_call_within_a_call_has_the_room_of_its_parent(two_gpus: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = Caller(two_gpus, "parent", gpus=2)
    until(lambda: parent.has)
    with two_gpus._changed, two_gpus._table.turn() as page:
        (ticket,) = page.entries
        # Another process waits for the parent, so that nobody in it may wait behind that one.
        page.put(Entry(ticket=page.number(), slot=99, seen=time.monotonic() + 60, needs=("GPU-0", "GPU-1")))
    two_gpus._started(ticket, os.getpid())
    monkeypatch.setattr(inside, "running", True)

    child, other = Caller(two_gpus, "child", words="visible 0"), Caller(two_gpus, "other", words="visible 1")
    until(lambda: child.has and other.has)
    for caller in (child, other, parent):
        caller.end()


@pytest.mark.parametrize(("words", "fair"), [("growth", False), ("split 2", False), ("limit fair", True)])
def test_a_call_is_in_the_book_with_its_process_and_whether_it_leaves_others_a_part(
    two_gpus: Leases, words: str, fair: bool
) -> None:
    with two_gpus.lease(parse(words), 1) as lease:
        lease.started(os.getpid())
        with two_gpus._table.turn() as page:
            (claim,) = page.claims()

    assert (claim.size, claim.fair) == (None, fair)
    assert (claim.pid, claim.began) == (os.getpid(), began(os.getpid()))


def test_what_a_policy_takes_of_all_gpus_is_waited_for_too(two_gpus: Leases) -> None:
    over = threading.Event()
    order: list[str] = []

    def job(name: str) -> None:
        with two_gpus.share(parse("limit 60%"), waiting=lambda: order.append(f"{name} waits")):
            order.append(name)
            over.wait(20)

    threads = [threading.Thread(target=job, args=(name,), daemon=True) for name in ("one", "other")]
    for number, thread in enumerate(threads):
        thread.start()
        waits(two_gpus, number + 1)
    until(lambda: len(order) == 2)
    whole = Caller(two_gpus, "a GPU to itself")
    waits(two_gpus, 3)
    time.sleep(0.3)

    assert order == ["one", "other waits"]
    assert not whole.has
    over.set()
    until(lambda: len(order) == 3 and whole.has)
    whole.end()
    for thread in threads:
        thread.join()


class Interrupted(LeaseTable):
    """A book whose reader is interrupted once: at a turn, when that has begun, or when it is over."""

    def __init__(self, turn: int, late: bool) -> None:
        super().__init__()
        self._left, self._late = turn, late

    @contextlib.contextmanager
    def turn(self) -> Iterator[Page]:
        self._left -= 1
        now = self._left == 0
        if now and not self._late:
            raise KeyboardInterrupt
        with super().turn() as page:
            yield page
        if now:
            raise KeyboardInterrupt


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("turn", range(1, 6))
def test_an_interrupt_leaves_no_call_in_the_book_whenever_it_comes(two_gpus: Leases, turn: int, late: bool) -> None:
    del two_gpus
    book = Interrupted(turn, late)
    led = Leases(book)

    with contextlib.suppress(KeyboardInterrupt), led.lease(NOTHING, 2) as lease:
        lease.started(os.getpid())
    with book.turn() as page:
        left = [entry for entry in page.entries.values() if entry.claims]
    caller = Caller(led, "next", gpus=2)
    until(lambda: caller.has)
    caller.end()

    assert left == []  # which other processes would wait for
    with book.turn() as page:
        assert page.entries == {}


def test_a_lease_that_ends_while_a_survey_looks_refuses_nobody(
    two_gpus: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders = [Caller(two_gpus, "one", words="visible 0"), Caller(two_gpus, "other", words="visible 1")]
    until(lambda: all(holder.has for holder in holders))

    def ending(*_: object) -> Snapshot:
        """Return what the driver says before they end."""
        if not any(holder.over.is_set() for holder in holders):
            full = tuple(replace(gpu, free=0) for gpu in machine(2).gpus)
            for holder in holders:
                holder.end()
            return Snapshot(time=time.time(), gpus=full)
        return machine(2)

    monkeypatch.setattr(offer, "look", ending)

    assert two_gpus.survey(parse("limit 1GiB"), 1) == 12


def test_whom_nobody_looks_after_is_not_waited_for(two_gpus: Leases) -> None:
    first = Caller(two_gpus, "first", words="visible 0")
    until(lambda: first.has)
    with two_gpus._changed, two_gpus._table.turn() as page:
        # Its process is stopped: else the GPU that is free would be kept for it.
        page.put(Entry(ticket=page.number(), slot=99, seen=time.monotonic() - ABSENT - 1, needs=("GPU-0", "GPU-1")))
    late = Caller(two_gpus, "late")

    until(lambda: late.has)
    for caller in (late, first):
        caller.end()


def test_a_row_of_another_namespace_is_not_mistaken(two_gpus: Leases) -> None:
    del two_gpus
    rows = [Process(gpu="0", pid=os.getpid(), kind="C", held=GIB), Process(gpu="0", pid=2**22 + 1, kind="C", held=GIB)]

    assert offer.strangers(Snapshot(time=0.0, processes=tuple(rows))) == (2**22 + 1,)
