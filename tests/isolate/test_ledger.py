"""Who gets which GPUs when: the order of those who wait, drivers that hang, and other processes of the same user."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.jupyter import until
from tfgpu_magic.config.words import parse
from tfgpu_magic.errors import Refused
from tfgpu_magic.isolate import book as book_module
from tfgpu_magic.isolate import offer
from tfgpu_magic.isolate.book import ABSENT, Book, Entry, Page, SharedBook, began
from tfgpu_magic.isolate.claims import Claim, Need
from tfgpu_magic.isolate.lease import Abandoned
from tfgpu_magic.isolate.ledger import TICK, Ledger
from tfgpu_magic.isolate.process import inside
from tfgpu_magic.monitor.snapshot import Gpu, Process, Snapshot

GIB = 2**30
NOTHING = parse("growth")


def machine(gpus: int) -> Snapshot:
    """GPUs of 8 GiB that nobody uses."""
    found = (Gpu(index=n, uuid=f"GPU-{n}", name="A GPU", total=8 * GIB, free=8 * GIB) for n in range(gpus))
    return Snapshot(time=time.time(), gpus=tuple(found))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(offer, "look", lambda *_: machine(2))
    return Ledger(Book())


class Caller(threading.Thread):
    """Leases GPUs, and has them until it is told to let go."""

    def __init__(self, led: Ledger, name: str, gpus: int = 1, words: str = "growth") -> None:
        super().__init__(daemon=True, name=name)
        self._ledger, self._gpus, self._words = led, gpus, words
        self.has: tuple[int, ...] = ()
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        with (
            contextlib.suppress(Abandoned),
            self._ledger.lease(parse(self._words), self._gpus, wanted=lambda: not self.over.is_set()) as lease,
        ):
            self.has = tuple(device.gpu.index for device in lease.devices)
            self.over.wait()

    def end(self) -> None:
        self.over.set()
        self._ledger.stir()
        self.join()


def waits(led: Ledger, callers: int) -> None:
    """Until so many are in the book, and have said what they need or have it."""

    def there() -> bool:
        with led._changed, led._book.turn() as page:
            entries = list(page.entries.values())
        return len(entries) == callers and all(entry.need or entry.claims for entry in entries)

    until(there)


def test_those_who_wait_for_the_same_are_served_in_the_order_in_which_they_came(two_gpus: Ledger) -> None:
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


def test_who_needs_two_gpus_is_not_passed_for_ever_by_those_who_need_one(two_gpus: Ledger) -> None:
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


def test_who_waits_for_one_gpu_keeps_nobody_from_another(two_gpus: Ledger) -> None:
    has = Caller(two_gpus, "has", words="visible 0")
    until(lambda: has.has)
    waiting = Caller(two_gpus, "waiting", words="visible 0")
    waits(two_gpus, 2)
    other = Caller(two_gpus, "other")

    until(lambda: other.has)
    assert (other.has, waiting.has) == ((1,), ())
    for caller in (waiting, other, has):
        caller.end()


def test_a_driver_that_was_slow_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([Snapshot(time=time.time(), error="NVML did not answer within 1.5 s."), machine(1)])
    monkeypatch.setattr(offer, "look", lambda *_: next(seen))

    with Ledger(Book()).lease(NOTHING, None) as lease:
        assert [device.gpu.index for device in lease.devices] == [0]


def test_a_driver_that_does_not_answer_is_not_the_absence_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offer, "look", lambda *_: Snapshot(time=time.time(), error="NVML hangs."))
    led = Ledger(Book())

    with pytest.raises(Refused, match=r"(?s)NVML hangs\..*gpus=0"):
        led.survey(NOTHING, None)
    with pytest.raises(Refused, match=r"NVML hangs\."), led.lease(NOTHING, None):
        pass


def test_no_gpu_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offer, "look", lambda *_: Snapshot(time=time.time(), error="No driver.", absent=True))
    led = Ledger(Book())

    assert led.survey(NOTHING, None) is None
    with led.lease(NOTHING, None) as lease:
        assert lease.devices == ()


def test_a_call_within_a_call_has_the_room_of_its_parent(two_gpus: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = Caller(two_gpus, "parent", gpus=2)
    until(lambda: parent.has)
    with two_gpus._changed, two_gpus._book.turn() as page:
        (ticket,) = page.entries
        need = Need(page.number(), 1, (("GPU-0", None), ("GPU-1", None)))
        # Another process waits for the parent, so that nobody in it may wait behind that one.
        page.put(Entry(ticket=need.ticket, slot=99, seen=time.monotonic() + 60, need=need))
    two_gpus._started(ticket, os.getpid())
    monkeypatch.setattr(inside, "running", True)

    child, other = Caller(two_gpus, "child", words="visible 0"), Caller(two_gpus, "other", words="visible 1")
    until(lambda: child.has and other.has)
    for caller in (child, other, parent):
        caller.end()


def test_what_a_policy_takes_of_all_gpus_is_waited_for_too(two_gpus: Ledger) -> None:
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


class Interrupted(Book):
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
def test_an_interrupt_leaves_no_call_in_the_book_whenever_it_comes(two_gpus: Ledger, turn: int, late: bool) -> None:
    del two_gpus
    book = Interrupted(turn, late)
    led = Ledger(book)

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
    two_gpus: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders = [Caller(two_gpus, "one", words="visible 0"), Caller(two_gpus, "other", words="visible 1")]
    until(lambda: all(holder.has for holder in holders))

    def ending(*_: object) -> Snapshot:
        """What the driver says before they end."""
        if not any(holder.over.is_set() for holder in holders):
            full = tuple(replace(gpu, free=0) for gpu in machine(2).gpus)
            for holder in holders:
                holder.end()
            return Snapshot(time=time.time(), gpus=full)
        return machine(2)

    monkeypatch.setattr(offer, "look", ending)

    assert two_gpus.survey(parse("limit 1GiB"), 1) == 12


def test_one_look_at_a_time_serves_all_who_wait(two_gpus: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Caller(two_gpus, "first", gpus=2)
    until(lambda: first.has)
    waiting = [Caller(two_gpus, str(number), gpus=2) for number in range(10)]
    waits(two_gpus, 11)
    turns: list[float] = []
    turn = two_gpus._book.turn

    @contextlib.contextmanager
    def counted() -> Iterator[Page]:
        turns.append(time.monotonic())
        with turn() as page:
            yield page

    def one_a_tick() -> bool:
        """Whether that is so in a while; before it, all may still be telling each other that they have come."""
        turns.clear()
        begun = time.monotonic()
        time.sleep(2 * TICK)
        return 1 <= len(turns) <= (time.monotonic() - begun) / TICK + 1

    monkeypatch.setattr(two_gpus._book, "turn", counted)
    until(one_a_tick, seconds=20)
    with two_gpus._changed, turn() as page:
        seen = {entry.seen for entry in page.entries.values() if entry.need}
    assert len(seen) == 1  # and so other processes know that all of them are there
    for caller in (*waiting, first):
        caller.over.set()
    two_gpus.stir()
    for caller in (*waiting, first):
        caller.join()


# Between processes


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SharedBook]:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    book = SharedBook()
    yield book
    book.forget()


OTHER = """
    import sys, time
    from tfgpu_magic.isolate.book import Entry, SharedBook
    from tfgpu_magic.isolate.claims import Claim, Need

    book = SharedBook()
    with book.turn() as page:
        ticket = page.number()
        claims = (Claim("GPU-0", None, pid={pid}, began={began}, since=ticket),)
        page.put(Entry(ticket=ticket, slot=book.slot, seen=time.monotonic(), claims=claims))
    print(book.slot, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def other(pid: int | None = None, began: int | None = None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process with a GPU, and its number in the book."""
    code = textwrap.dedent(OTHER.format(pid=pid, began=began))
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def claims(book: SharedBook) -> list[Claim]:
    with book.turn() as page:
        return page.claims()


def test_the_book_knows_the_living_of_all_processes_and_forgets_the_dead(shared: SharedBook) -> None:
    with shared.turn() as page:
        page.put(Entry(ticket=page.number(), slot=shared.slot, seen=time.monotonic()))
    with other() as (process, slot):
        assert slot != shared.slot
        assert claims(shared) == [Claim("GPU-0", None, since=2)]
        with shared.turn() as page:
            ended = page.ended
        process.kill()
        process.wait()

        assert claims(shared) == []
        with shared.turn() as page:
            assert page.ended == ended + 1
            assert list(page.entries) == [1]


def test_a_call_that_outlives_its_caller_for_a_moment_still_has_its_gpu(shared: SharedBook) -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as call,
        other(call.pid, began(call.pid)) as (process, _),
    ):
        process.kill()
        process.wait()

        assert [claim.pid for claim in claims(shared)] == [call.pid]
        call.kill()
        call.wait()
        assert claims(shared) == []


def test_a_call_that_runs_although_it_was_refused_is_in_nobodys_way(two_gpus: Ledger, shared: SharedBook) -> None:
    del two_gpus
    led = Ledger(shared)
    with led.share(parse("limit 20GiB")) as lease:
        caller = Caller(led, "next")
        until(lambda: caller.has, seconds=20)
        caller.end()

    assert lease.devices == ()


def test_a_call_whose_pid_is_anothers_by_now_has_nothing(shared: SharedBook) -> None:
    """As in a container that is started again with its /tmp: its pids begin anew."""
    begun = began(os.getpid())
    assert begun is not None
    with other(os.getpid(), begun - 1) as (process, _):
        assert len(claims(shared)) == 1
        process.kill()
        process.wait()

        assert claims(shared) == []


def test_a_call_that_nobody_has_waited_for_has_nothing(shared: SharedBook) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as call:
        with other(call.pid, began(call.pid)) as (process, _):
            process.kill()
            process.wait()
            assert len(claims(shared)) == 1
        call.kill()
        until(lambda: claims(shared) == [])
        assert call.returncode is None


def test_the_process_of_a_call_is_known_by_its_pid_and_its_beginning(two_gpus: Ledger) -> None:
    with two_gpus.lease(NOTHING, 1) as lease:
        lease.started(os.getpid())
        with two_gpus._book.turn() as page:
            (claim,) = page.claims()

    assert (claim.pid, claim.began) == (os.getpid(), began(os.getpid()))


def test_a_process_that_was_forked_has_no_calls_of_its_parent(shared: SharedBook) -> None:
    led = Ledger(shared)
    with shared.turn() as page:
        page.put(Entry(ticket=page.number(), slot=shared.slot, seen=0.0, claims=(Claim("GPU-0", None),)))
    slot = shared.slot
    child = os.fork()
    if child == 0:
        wrong = True
        try:
            led.forget()
            theirs, wrong = claims(shared), False
            wrong = theirs != [Claim("GPU-0", None)] or shared.slot == slot  # another's, whose end it will see
        finally:
            os._exit(wrong)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert claims(shared) == [Claim("GPU-0", None)]


def test_a_book_that_somebody_has_spoilt_or_removed_begins_anew(shared: SharedBook, tmp_path: Path) -> None:
    with shared.turn() as page:
        page.put(Entry(ticket=page.number(), slot=shared.slot, seen=0.0, claims=(Claim("GPU-0", None),)))
    (file,) = (tmp_path / "board").iterdir()
    file.write_bytes(b"nonsense" * 100)
    assert claims(shared) == [Claim("GPU-0", None)]  # one's own, at least
    file.unlink()
    assert claims(shared) == [Claim("GPU-0", None)]
    with other() as (_, slot):
        assert slot != shared.slot
        assert len(claims(shared)) == 2


def test_without_a_directory_each_process_has_a_book_of_its_own(
    shared: SharedBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", "/dev/null/nowhere")
    with shared.turn() as page:
        page.put(Entry(ticket=page.number(), slot=shared.slot, seen=0.0, claims=(Claim("GPU-0", None),)))

    assert claims(shared) == [Claim("GPU-0", None)]


@contextlib.contextmanager
def longest_file(size: int) -> Iterator[None]:
    """No file can grow beyond so many bytes: what does not fit is cut off, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("more", [0, 8, 50])
def test_a_full_disk_is_no_matter_to_a_call_nor_to_the_book(two_gpus: Ledger, shared: SharedBook, more: int) -> None:
    del two_gpus
    led = Ledger(shared)
    with other() as (process, slot):
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
            assert [claim.gpu for claim in claims(shared)] == ["GPU-1"]
        assert [claim.gpu for claim in claims(shared)] == ["GPU-1"]
        with other() as (_, slot):
            assert slot != shared.slot
            assert sorted(claim.gpu for claim in claims(shared)) == ["GPU-0", "GPU-1"]
        second.end()


def test_whoever_cannot_have_the_book_alone_writes_nothing(shared: SharedBook, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared.turn() as page:
        page.put(Entry(ticket=page.number(), slot=shared.slot, seen=0.0, claims=(Claim("GPU-0", None),)))
    (file,) = Path(os.environ["TFGPU_MAGIC_DIR"]).iterdir()
    written = file.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(book_module, "_lock", lambda *_: False)  # another process is stopped in the midst of its turn
        with shared.turn() as page:
            page.drop(1)
            ended = page.ended
        assert file.read_bytes() == written
        with shared.turn() as page:
            assert (page.ended, page.entries) == (ended, {})

    with shared.turn() as page:
        assert (page.ended, page.entries) == (ended, {})
    assert file.read_bytes() != written


def test_who_loses_the_book_waits_for_nobody_in_it(shared: SharedBook, monkeypatch: pytest.MonkeyPatch) -> None:
    with other():
        assert len(claims(shared)) == 1
        shared._close()
        monkeypatch.setenv("TFGPU_MAGIC_DIR", "/dev/null/nowhere")

        assert claims(shared) == []  # whose end would never be seen


def test_whom_nobody_looks_after_is_not_waited_for(two_gpus: Ledger) -> None:
    first = Caller(two_gpus, "first", words="visible 0")
    until(lambda: first.has)
    with two_gpus._changed, two_gpus._book.turn() as page:
        need = Need(page.number(), 2, (("GPU-0", None), ("GPU-1", None)))
        # Its process is stopped: else the GPU that is free would be kept for it.
        page.put(Entry(ticket=need.ticket, slot=99, seen=time.monotonic() - ABSENT - 1, need=need))
    late = Caller(two_gpus, "late")

    until(lambda: late.has)
    for caller in (late, first):
        caller.end()


def test_a_row_of_another_namespace_is_not_mistaken(two_gpus: Ledger) -> None:
    del two_gpus
    rows = [Process(gpu="0", pid=os.getpid(), kind="C", held=GIB), Process(gpu="0", pid=2**22 + 1, kind="C", held=GIB)]

    assert offer.strangers(Snapshot(time=0.0, processes=tuple(rows))) == (2**22 + 1,)
