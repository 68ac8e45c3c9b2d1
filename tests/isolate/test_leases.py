"""Which calls get which GPUs when, and the table of leases that all processes of a user share."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.machine.boards import root_only
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.claims import claim as claim_module
from tfgpu_magic.claims import ledger as ledger_module
from tfgpu_magic.claims.claim import ABSENT, Claim, LedgerState
from tfgpu_magic.claims.ledger import ClaimLedger
from tfgpu_magic.engine import other_processes, room
from tfgpu_magic.engine.room import Wait
from tfgpu_magic.errors import Refused
from tfgpu_magic.ground import process_kind
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.isolate import leasing
from tfgpu_magic.isolate.leasing import Abandoned, Lease, LeaseRequest, Leases
from tfgpu_magic.policy.decide import decide
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.process_state import ProcessState

NOTHING = parse("growth")

WHOLE: dict[str, int | None] = {"GPU-0": None}
"""A GPU that a call has to itself."""


def machine(gpus: int) -> Snapshot:
    """Return a snapshot of GPUs of 8 GiB of which nothing is used."""
    found = (Gpu(index=n, uuid=f"GPU-{n}", name="A GPU", total=8 * GIB, free=8 * GIB) for n in range(gpus))
    return Snapshot(time=time.time(), gpus=tuple(found))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Leases:
    """Leases of a process that has a ledger of its own."""
    monkeypatch.setenv("TFGPU_MAGIC_DIR", "/dev/null/nowhere")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(leasing, "look", lambda *_: machine(2))
    return Leases(ClaimLedger())


class Caller(threading.Thread):
    """Leases GPUs, and has them until it is told to let go."""

    def __init__(self, led: Leases, name: str, gpus: int = 1, words: str = "growth") -> None:
        super().__init__(daemon=True, name=name)
        self._ledger, self._gpus, self._words = led, gpus, words
        self.has: tuple[int, ...] = ()
        self.lease = Lease(NOTHING)
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        with (
            contextlib.suppress(Abandoned),
            self._ledger.lease(LeaseRequest(parse(self._words), self._gpus, lambda: not self.over.is_set())) as lease,
        ):
            self.lease = lease
            self.has = tuple(device.gpu.index for device in lease.devices)
            self.over.wait()

    def end(self) -> None:
        self.over.set()
        self.join()


def waits(led: Leases, callers: int) -> None:
    """Wait until so many are in the table, and have said what they need or have it."""

    until(lambda: [bool(entry.requested or entry.had) for entry in entries(led)] == [True] * callers)


def entries(led: Leases) -> list[Claim]:
    with led._ledger.transaction() as state:
        return list(state.claims.values())


def another_waits(led: Leases, seen: float) -> None:
    """Have a call of another process wait for both GPUs, which has looked into the table then."""
    with led._ledger.transaction() as state:
        state.put(Claim(number=state.next_number(), slot=99, seen=seen, requested=("GPU-0", "GPU-1")))


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


def test_who_needs_two_gpus_is_not_passed_for_ever_by_those_who_need_one(
    two_gpus: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_module, "ABSENT", 600.0)  # a machine that stands still for seconds passes nobody either
    first, second = Caller(two_gpus, "first"), Caller(two_gpus, "second")
    until(lambda: first.has and second.has)
    both = Caller(two_gpus, "both", gpus=2)
    waits(two_gpus, 3)
    late = Caller(two_gpus, "late")
    waits(two_gpus, 4)
    first.end()
    latest = Caller(two_gpus, "latest")
    waits(two_gpus, 4)  # it has looked at the GPU that is free

    assert [entry.number for entry in entries(two_gpus) if entry.had] == [2]
    second.end()
    until(lambda: both.has)
    assert not late.has
    both.end()
    until(lambda: late.has and latest.has)
    late.end()
    latest.end()


def test_who_waits_long_keeps_the_place_while_the_process_looks_after_it(
    two_gpus: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leasing, "_AGAIN", 600.0)  # it renews its claim, and not only when it looks again
    first = Caller(two_gpus, "first", gpus=2)
    until(lambda: first.has)
    second = Caller(two_gpus, "second")
    waits(two_gpus, 2)
    with two_gpus._ledger.transaction() as state:
        state.claims[2] = replace(state.claims[2], seen=time.monotonic() - ABSENT)  # as if it had waited so long

    def keeps_its_place() -> bool:
        state = two_gpus._ledger.read()
        state.put(replace(state.claims[2], number=3))
        return state.waits_behind(3, ["GPU-0"])

    until(keeps_its_place)
    for caller in (second, first):
        caller.end()


def test_a_driver_that_does_not_answer_is_not_the_absence_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "look", lambda *_: Snapshot(time=time.time(), error="NVML hangs."))
    led = Leases(ClaimLedger())

    with pytest.raises(Refused, match=r"(?s)NVML hangs\..*gpus=0"):
        led.survey(NOTHING, None)
    with pytest.raises(Refused, match=r"NVML hangs\."), led.lease(LeaseRequest(NOTHING)):
        pass


def test_a_call_that_waits_for_other_programs_goes_on_when_there_is_room_or_ends_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (empty,) = machine(1).gpus
    frees, shown = iter([GIB, GIB]), list[str]()

    def look(*_: object) -> Snapshot:
        return Snapshot(time=time.time(), gpus=(empty._replace(free=next(frees, 8 * GIB)),))

    monkeypatch.setattr(leasing, "look", look)
    monkeypatch.setattr(room, "TRY_EVERY", 0.0)
    led, show = Leases(ClaimLedger()), lambda message: shown.append(str(message))
    with led.lease(LeaseRequest(parse("limit 4GiB"), 1, wait=Wait(600.0, show, job=True))) as lease:
        had = [device.gpu.free for device in lease.devices]
    frees = iter([GIB] * 9)
    over = LeaseRequest(parse("limit 4GiB"), wait=Wait(1e-9, show, job=True), for_all=True)
    ended = r"(?s)^Not started\. There was no room within .* 1 GiB of 8 GiB are free"
    with pytest.raises(Refused, match=ended), led.lease(over):
        pass

    assert had == [8 * GIB]
    assert re.match(r"(?s)Waiting for room .* 1 GiB of 8 GiB are free.*Programs of others have no order", shown[0])
    assert shown[1].startswith("Waited for room from ")
    assert len(shown) == 3  # once each, and the end of the second


def test_a_call_within_a_call_has_the_room_of_its_parent(two_gpus: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = Caller(two_gpus, "parent", gpus=2)
    until(lambda: parent.has)
    (entry,) = entries(two_gpus)
    another_waits(two_gpus, seen=time.monotonic() + 60)  # for the parent: nobody in it may wait behind that one
    with two_gpus._ledger.transaction() as state:
        state.change(entry.number, pid=os.getpid())
    monkeypatch.setattr(process_kind, "in_worker", True)

    child, other = Caller(two_gpus, "child", words="visible 0"), Caller(two_gpus, "other", words="visible 1")
    until(lambda: child.has and other.has)
    for caller in (child, other, parent):
        caller.end()


class Interrupted(ClaimLedger):
    """A book whose reader is interrupted once: at a turn, when that has begun, or when it is over."""

    def __init__(self, turn: int, late: bool) -> None:
        super().__init__()
        self._left, self._late = turn, late

    @contextlib.contextmanager
    def transaction(self, timeout: float | None = None) -> Iterator[LedgerState]:
        self._left -= 1
        now = self._left == 0
        if now and not self._late:
            signal.raise_signal(signal.SIGINT)
        with super().transaction(timeout) as state:
            yield state
        if now and self._late:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("turn", range(1, 5))
def test_an_interrupt_leaves_no_call_in_the_book_whenever_it_comes(two_gpus: Leases, turn: int, late: bool) -> None:
    del two_gpus
    book = Interrupted(turn, late)
    led = Leases(book)

    with contextlib.suppress(KeyboardInterrupt), led.lease(LeaseRequest(NOTHING, 2)):
        pass
    with book.transaction() as page:
        left = [entry for entry in page.claims.values() if entry.had]
    caller = Caller(led, "next", gpus=2)
    until(lambda: caller.has)
    caller.end()

    assert left == []  # which other processes would wait for
    with book.transaction() as state:
        assert state.claims == {}


@pytest.fixture
def ending(two_gpus: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the leases of both GPUs end while the first look at them is made."""
    holders = [Caller(two_gpus, "one", words="visible 0"), Caller(two_gpus, "other", words="visible 1")]
    until(lambda: all(holder.has for holder in holders))

    def ending(*_: object) -> Snapshot:
        """Return what the driver says before they end."""
        if not any(holder.over.is_set() for holder in holders):
            full = tuple(gpu._replace(free=0) for gpu in machine(2).gpus)
            for holder in holders:
                holder.end()
            return Snapshot(time=time.time(), gpus=full)
        return machine(2)

    monkeypatch.setattr(leasing, "look", ending)


def surveyed(led: Leases) -> bool:
    return led.survey(parse("limit 1GiB"), 1) == 12


def leased(led: Leases) -> bool:
    request = LeaseRequest(parse("limit 1GiB"))
    request.names.found = {}  # else it looks once more, after it has read them
    with led.lease(request) as lease:
        return len(lease.devices) == 1


@pytest.mark.usefixtures("ending")
@pytest.mark.parametrize("look", [surveyed, leased])
def test_a_lease_that_ends_while_the_gpus_are_looked_at_refuses_nobody(
    two_gpus: Leases, look: Callable[[Leases], bool]
) -> None:
    assert look(two_gpus)


def test_whom_nobody_looks_after_is_not_waited_for(two_gpus: Leases) -> None:
    first = Caller(two_gpus, "first", words="visible 0")
    until(lambda: first.has)
    another_waits(two_gpus, seen=time.monotonic() - ABSENT - 1)  # and is stopped: else GPU 1 would be kept for it
    late = Caller(two_gpus, "late")

    until(lambda: late.has)
    for caller in (late, first):
        caller.end()


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ClaimLedger]:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    book = ClaimLedger()
    yield book
    book.forget()


OTHER = """
    import sys, time
    from tfgpu_magic.claims.claim import Claim
    from tfgpu_magic.claims.ledger import ClaimLedger

    book = ClaimLedger()
    with book.transaction() as page:
        ticket = page.next_number()
        page.put(Claim(number=ticket, slot=book.slot, seen=time.monotonic(), had={"GPU-0": None}))
    print(book.slot, ticket, flush=True)
    sys.stdin.read()
"""
WORKER = """
    import sys
    from tfgpu_magic.claims.ledger import ClaimLedger

    book = ClaimLedger()
    with book.transaction() as page:
        seen = book._pid(page.claims[{number}].slot)
        page.change({number}, worker=book.slot)
    print(book.slot, seen, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def other(code: str = OTHER, command: tuple[str, ...] = ()) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """Have another process with a GPU, its number in the book, and that of its call."""
    line = [*command, sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(line, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        yield process, *map(int, process.stdout.readline().split())  # type: ignore[misc]
        process.kill()


def write(book: ClaimLedger, had: dict[str, int | None] = {}) -> None:  # noqa: B006  nobody changes it
    """Write a call of this process into a book, with what it has."""
    with book.transaction() as state:
        state.put(Claim(number=state.next_number(), slot=book.slot, seen=time.monotonic(), had=had))


def claims(book: ClaimLedger) -> list[dict[str, int | None]]:
    """Return what each call has."""
    with book.transaction() as state:
        return [{**claim.had} for claim in state.call_claims()]


def pids(book: ClaimLedger) -> list[int | None]:
    """Return the process of each call."""
    return [claim.pid for claim in book.read().call_claims()]


def test_the_book_knows_the_living_of_all_processes_and_forgets_the_dead(shared: ClaimLedger) -> None:
    write(shared)
    with other() as (process, slot, _):
        assert slot != shared.slot
        assert claims(shared) == [WHOLE]
        with shared.transaction() as page:
            ended = page.ended
        process.kill()
        process.wait()

        assert claims(shared) == []
        with shared.transaction() as state:
            assert state.ended == ended + 1
            assert list(state.claims) == [1]


def test_a_report_that_began_while_a_line_decided_leaves_its_claim_alone(shared: ClaimLedger) -> None:
    shared.deciding.append(None)
    with shared.transaction() as state:
        state.set_own(shared.slot, {"GPU-0": GIB})
    before = shared.own_claim()  # the report is made now: the policy is not applied yet, and it has nothing
    shared.deciding.pop()
    shared.renew(before, {})

    claim = shared.own_claim()
    assert claim is not None
    assert claim.had == {"GPU-0": GIB}


def test_a_child_that_was_forked_has_none_of_its_parents_calls(shared: ClaimLedger) -> None:
    write(shared)
    if not (child := os.fork()):
        shared.forget()
        with shared.transaction() as state:
            os._exit(sum(entry.slot == shared.slot for entry in state.claims.values()))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_call_that_outlives_its_caller_for_a_moment_still_has_its_gpu(shared: ClaimLedger) -> None:
    with other() as (process, _, number), other(WORKER.format(number=number)) as (call, _, _):
        assert pids(shared) == [call.pid]
        process.kill()
        process.wait()

        assert pids(shared) == [call.pid]
        call.kill()
        until(lambda: claims(shared) == [])
        assert call.returncode is None  # nobody has waited for it


def test_a_call_that_runs_although_it_was_refused_is_in_nobodys_way(two_gpus: Leases, shared: ClaimLedger) -> None:
    del two_gpus
    led = Leases(shared)
    with led.lease(LeaseRequest(parse("limit 20GiB"), for_all=True)) as lease:
        caller = Caller(led, "next")
        until(lambda: caller.has, seconds=20)
        caller.end()

    assert lease.devices == ()


def test_a_book_that_somebody_has_spoilt_or_removed_begins_anew(shared: ClaimLedger, tmp_path: Path) -> None:
    write(shared, WHOLE)
    (file,) = (tmp_path / "board").iterdir()
    file.write_bytes(b"nonsense" * 100)
    assert claims(shared) == [WHOLE]  # one's own, at least
    file.unlink()
    assert claims(shared) == [WHOLE]
    with other() as (_, slot, _):
        assert slot != shared.slot
        assert len(claims(shared)) == 2


def test_without_a_directory_each_process_has_a_book_of_its_own(
    shared: ClaimLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TFGPU_MAGIC_DIR", "/dev/null/nowhere")
        with shared.transaction() as state:
            state.put(Claim(number=7, slot=shared.slot, seen=0.0, had=WHOLE))
        assert claims(shared) == [WHOLE]
    with other():
        assert len(claims(shared)) == 2
        shared._close()
        monkeypatch.setenv("TFGPU_MAGIC_DIR", "/dev/null/nowhere")
        assert claims(shared) == [WHOLE]  # the end of others would never be seen


@contextlib.contextmanager
def longest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: what does not fit is cut off, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("more", [0, 8, 50])
def test_a_full_disk_is_no_matter_to_a_call_nor_to_the_book(two_gpus: Leases, shared: ClaimLedger, more: int) -> None:
    del two_gpus
    led = Leases(shared)
    with other() as (process, slot, _):
        del slot
        (file,) = Path(os.environ["TFGPU_MAGIC_DIR"]).iterdir()
        written = file.read_bytes()
        with longest_file(len(written) + more):
            first = Caller(led, "first")
            until(lambda: first.has, seconds=20)
            second = Caller(led, "second", words="visible 1")
            waits(led, 3)
            assert (first.has, second.has) == ((1,), ())
            assert file.read_bytes()[: len(written)] == written  # what others have written is there, and whole
            first.end()
            until(lambda: second.has, seconds=20)
            process.kill()
            process.wait()
            assert [[*had] for had in claims(shared)] == [["GPU-1"]]
        assert [[*had] for had in claims(shared)] == [["GPU-1"]]
        with other() as (_, slot, _):
            assert slot != shared.slot
            assert sorted(gpu for had in claims(shared) for gpu in had) == ["GPU-0", "GPU-1"]
        second.end()


def test_whoever_cannot_have_the_book_alone_writes_nothing(
    shared: ClaimLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(shared, WHOLE)
    (file,) = Path(os.environ["TFGPU_MAGIC_DIR"]).iterdir()
    written = file.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(
            ledger_module, "_lock_byte", lambda *_: False
        )  # another process is stopped in the midst of its turn
        with shared.transaction() as page:
            page.drop(1)
            ended = page.ended
        assert file.read_bytes() == written
        with shared.transaction() as page:
            assert (page.ended, page.claims) == (ended, {})

    with shared.transaction() as state:
        assert (state.ended, state.claims) == (ended, {})
    assert file.read_bytes() != written


def test_a_ledger_of_another_version_is_refused_while_its_processes_live(
    shared: ClaimLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "VERSION", 99)
    with other() as (process, _, _):
        with pytest.raises(Refused, match="restart this "):
            claims(shared)
        assert shared.wanted_by_others() == set()  # what only looks says nothing
        process.kill()
        process.wait()
        assert claims(shared) == []


def test_without_the_lock_a_decision_is_made_and_says_so(shared: ClaimLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "LOCK_TIMEOUT", 0.1)
    monkeypatch.setattr(other_processes, "LEDGER", shared)
    process = ProcessState(shown=("GPU-0", "GPU-1"), given=("GPU-0", "GPU-1"))
    with other(OTHER.replace("print(", "    print(").replace("sys.stdin", "    sys.stdin")) as (holder, _, _):
        os.kill(holder.pid, signal.SIGSTOP)
        with other_processes.decided(process, machine(2), partial(decide, parse("limit 1GiB"), machine(2))) as made:
            assert "kept the ledger of claims for" in str(made.notes[-1])
        own = shared.own_claim()
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert own is not None
    shared.renew(own, own.had)  # what could not be written is, as soon as it can
    assert own.number in ClaimLedger.read(shared).claims


def test_what_renews_a_claim_in_the_background_keeps_no_line_waiting(
    shared: ClaimLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "LOCK_TIMEOUT", float("inf"))
    with other(OTHER.replace("print(", "    print(").replace("sys.stdin", "    sys.stdin")) as (holder, _, _):
        os.kill(holder.pid, signal.SIGSTOP)
        renews = threading.Thread(target=shared.renew, args=(None, WHOLE))
        renews.start()
        try:
            until(lambda: not renews.is_alive())
        finally:
            os.kill(holder.pid, signal.SIGKILL)
            renews.join()
    shared.renew(shared.own_claim(), WHOLE)
    own = shared.own_claim()
    assert own is not None
    assert own.number in ClaimLedger.read(shared).claims


CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc")


@root_only
def test_two_containers_that_share_the_directory_see_each_other(shared: ClaimLedger) -> None:
    with other() as (process, slot, number), other(WORKER.format(number=number), CONTAINER) as (call, worker, seen):
        (pid,) = pids(shared)
        assert (len({slot, worker, shared.slot}), seen) == (3, -1 - slot)  # which has no pid there
        assert pid in [child.pid for child in psutil.Process(call.pid).children()]
        process.kill()
        process.wait()
        assert pids(shared) == [pid]
