"""What a process without calls reads of the lease table: the leases of the living, in order; no lock is touched."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.isolate.callers import Caller, two_gpus
from tests.isolate.test_lease_file import claims, other, shared
from tests.waiting import until
from tfgpu_magic.config.parser import parse
from tfgpu_magic.config.policy import NOTHING
from tfgpu_magic.config.promises import Promise
from tfgpu_magic.isolate.claims import Claim
from tfgpu_magic.isolate.lease_file import Entry, LeaseFile, leases
from tfgpu_magic.isolate.leases import Leases
from tfgpu_magic.monitor.directory import BoardDirectory
from tfgpu_magic.monitor.pids import began
from tfgpu_magic.other_processes import OtherProcesses, settling

__all__ = ["shared", "two_gpus"]  # the fixtures


@pytest.fixture
def here(shared: LeaseFile) -> Iterator[BoardDirectory]:
    del shared
    with BoardDirectory() as place:
        yield place


def test_without_a_table_there_are_no_leases(here: BoardDirectory) -> None:
    assert list(leases(here)) == []


def test_a_lease_is_there_as_long_as_its_caller_or_its_process_is(here: BoardDirectory) -> None:
    with other() as (process, _):
        assert list(leases(here)) == [Promise(gpu="GPU-0")]  # the whole GPU
        process.kill()
        process.wait()

        until(lambda: not list(leases(here)), seconds=3)


def test_calls_of_this_process_count_and_those_that_wait_do_not(here: BoardDirectory, shared: LeaseFile) -> None:
    mine = Claim("GPU-0", 5, pid=os.getpid(), began=began(os.getpid()))
    with shared.turn() as page:
        page.put(Entry(ticket=page.number(), slot=shared.slot, seen=time.monotonic(), came=7.0, claims=(mine,)))
        ticket = page.number()
        page.put(Entry(ticket=ticket, slot=shared.slot, seen=time.monotonic(), needs=("GPU-0",)))

    assert list(leases(here)) == [Promise(gpu="GPU-0", pid=os.getpid(), size=5, asked=7.0)]


def test_to_read_releases_no_lock_of_this_process(here: BoardDirectory, shared: LeaseFile) -> None:
    with shared.turn() as page:
        page.put(Entry(ticket=page.number(), slot=shared.slot, seen=0.0, claims=(Claim("GPU-0", None),)))
    list(leases(here))
    with other() as (_, slot):
        assert slot != shared.slot  # it sees that this process is alive
        assert len(claims(shared)) == 2


def test_a_text_that_nobody_completes_is_no_lease(here: BoardDirectory, shared: LeaseFile, tmp_path: Path) -> None:
    assert claims(shared) == []
    (file,) = (tmp_path / "board").iterdir()
    file.write_bytes(b"nonsense" * 100)

    assert list(leases(here)) == []


def test_a_process_does_not_stand_in_its_own_way(shared: LeaseFile) -> None:
    mine = Claim("GPU-0", 5, pid=os.getpid(), began=began(os.getpid()))
    with shared.turn() as page:
        page.put(Entry(ticket=page.number(), slot=shared.slot, seen=time.monotonic(), claims=(mine,)))

    with settling(NOTHING) as processes:
        assert processes == OtherProcesses()


def test_a_call_with_a_fair_part_waits_for_one_that_has_a_gpu_to_itself(shared: LeaseFile, two_gpus: Leases) -> None:
    del two_gpus  # the machine is meant: this process's calls are in the shared table
    calls, over = Leases(shared), threading.Event()
    said: list[str] = []

    def takes_a_part() -> None:
        with calls.share(parse("limit fair"), waiting=lambda: said.append("waits")):
            said.append("begins")
            over.wait()

    whole = Caller(calls, "a GPU to itself")
    until(lambda: whole.has)
    fair = threading.Thread(target=takes_a_part, daemon=True)
    fair.start()
    until(lambda: said)
    whole.end()
    until(lambda: said == ["waits", "begins"])
    over.set()
    fair.join()
