"""The book of all processes of a user: it knows the living, forgets the dead, and outlasts what is done to it."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.isolate.callers import Caller, two_gpus, waits
from tests.waiting import until
from tfgpu_magic.config.parser import parse
from tfgpu_magic.isolate import lease_file as book_module
from tfgpu_magic.isolate.claims import Claim
from tfgpu_magic.isolate.lease_file import Entry, LeaseFile
from tfgpu_magic.isolate.leases import Leases
from tfgpu_magic.monitor.pids import began

__all__ = ["two_gpus"]  # the fixture


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LeaseFile]:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    book = LeaseFile()
    yield book
    book.forget()


OTHER = """
    import sys, time
    from tfgpu_magic.isolate.lease_file import Entry, LeaseFile
    from tfgpu_magic.isolate.claims import Claim

    book = LeaseFile()
    with book.turn() as page:
        ticket = page.number()
        claims = (Claim("GPU-0", None, pid={pid}, began={began}),)
        page.put(Entry(ticket=ticket, slot=book.slot, seen=time.monotonic(), claims=claims))
    print(book.slot, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def other(pid: int | None = None, began: int | None = None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Have another process with a GPU, and its number in the book."""
    code = textwrap.dedent(OTHER.format(pid=pid, began=began))
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def claims(book: LeaseFile) -> list[Claim]:
    with book.turn() as page:
        return page.claims()


def test_the_book_knows_the_living_of_all_processes_and_forgets_the_dead(shared: LeaseFile) -> None:
    with shared.turn() as page:
        page.put(Entry(ticket=page.number(), slot=shared.slot, seen=time.monotonic()))
    with other() as (process, slot):
        assert slot != shared.slot
        assert claims(shared) == [Claim("GPU-0", None)]
        with shared.turn() as page:
            ended = page.ended
        process.kill()
        process.wait()

        assert claims(shared) == []
        with shared.turn() as page:
            assert page.ended == ended + 1
            assert list(page.entries) == [1]


def test_a_call_that_outlives_its_caller_for_a_moment_still_has_its_gpu(shared: LeaseFile) -> None:
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


def test_a_call_that_runs_although_it_was_refused_is_in_nobodys_way(two_gpus: Leases, shared: LeaseFile) -> None:
    del two_gpus
    led = Leases(shared)
    with led.share(parse("limit 20GiB")) as lease:
        caller = Caller(led, "next")
        until(lambda: caller.has, seconds=20)
        caller.end()

    assert lease.devices == ()


def test_a_call_whose_pid_is_anothers_by_now_has_nothing(shared: LeaseFile) -> None:
    """As in a container that is started again with its /tmp: its pids begin anew."""
    begun = began(os.getpid())
    assert begun is not None
    with other(os.getpid(), begun - 1) as (process, _):
        assert len(claims(shared)) == 1
        process.kill()
        process.wait()

        assert claims(shared) == []


def test_a_call_that_nobody_has_waited_for_has_nothing(shared: LeaseFile) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as call:
        with other(call.pid, began(call.pid)) as (process, _):
            process.kill()
            process.wait()
            assert len(claims(shared)) == 1
        call.kill()
        until(lambda: claims(shared) == [])
        assert call.returncode is None


def test_a_process_that_was_forked_has_no_calls_of_its_parent(shared: LeaseFile) -> None:
    led = Leases(shared)
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


def test_a_book_that_somebody_has_spoilt_or_removed_begins_anew(shared: LeaseFile, tmp_path: Path) -> None:
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
    shared: LeaseFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", "/dev/null/nowhere")
    with shared.turn() as page:
        page.put(Entry(ticket=page.number(), slot=shared.slot, seen=0.0, claims=(Claim("GPU-0", None),)))

    assert claims(shared) == [Claim("GPU-0", None)]


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
def test_a_full_disk_is_no_matter_to_a_call_nor_to_the_book(two_gpus: Leases, shared: LeaseFile, more: int) -> None:
    del two_gpus
    led = Leases(shared)
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


def test_whoever_cannot_have_the_book_alone_writes_nothing(shared: LeaseFile, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_who_loses_the_book_waits_for_nobody_in_it(shared: LeaseFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with other():
        assert len(claims(shared)) == 1
        shared._close()
        monkeypatch.setenv("TFGPU_MAGIC_DIR", "/dev/null/nowhere")

        assert claims(shared) == []  # whose end would never be seen
