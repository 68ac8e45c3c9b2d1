"""What is read of real processes, of the driver's module and of the host's memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.parking.house import IDLE
from tests.simgpu.talking import talker
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic import host, policy
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.model.report import HeldMemory
from tfgpu_magic.model.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.driver.look import PendingLook, look
from tfgpu_magic.monitor.owners import pids
from tfgpu_magic.monitor.owners.pids import opens_driver
from tfgpu_magic.parking import facts, host_memory_claims, reported
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.disk import DiskPlace
from tfgpu_magic.parking.inside import notebook as inside
from tfgpu_magic.parking.reported import ParkedProcess
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.probe import within
from tfgpu_magic.simgpu import Machine

CHILD = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()']); print(flush=True); input()"


MACHINE = {"MemTotal": 64 * GIB, "MemAvailable": 20 * GIB}
UNLIMITED = "Max address space         unlimited            unlimited            bytes\n"


@pytest.mark.parametrize(
    ("machine", "files", "limits", "room"),
    [
        (MACHINE, {}, UNLIMITED, 20 * GIB - int(6.4 * GIB)),
        ({**MACHINE, "MemTotal": 24 * GIB}, {}, UNLIMITED, 16 * GIB),
        ({**MACHINE, "MemAvailable": GIB}, {}, UNLIMITED, 0),
        (MACHINE, {"one/memory.max": 8 * GIB, "one/memory.current": 2 * GIB}, UNLIMITED, 5 * GIB),
        (MACHINE, {"one/memory.max": "max", "one/memory.high": 6 * GIB, "one/memory.current": GIB}, UNLIMITED, 4 * GIB),
        (MACHINE, {"memory.high": 6 * GIB, "memory.current": 2 * GIB}, UNLIMITED, 3 * GIB),
        (MACHINE, {}, f"Max address space         {5 * GIB}            {5 * GIB}            bytes\n", 3 * GIB),
        ({"MemAvailable": GIB}, {}, UNLIMITED, None),
    ],
)
def test_what_parking_may_fill_of_the_host_is_the_least_that_anything_allows(
    tmp_path: Path, machine: dict[str, int], files: dict[str, int | str], limits: str, room: int | None
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "meminfo").write_text("".join(f"{name}: {size // 1024} kB\n" for name, size in machine.items()))
    (tmp_path / "7/cgroup").write_text("0::/one\n")
    (tmp_path / "7/limits").write_text(limits)
    (tmp_path / "7/statm").write_text(f"{2 * GIB // os.sysconf('SC_PAGE_SIZE')} 0 0 0 0 0 0\n")
    for name, size in files.items():
        (tmp_path / "cgroups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroups" / name).write_text(str(size))

    assert facts.host_room(7, tmp_path, tmp_path / "cgroups") == room
    assert facts.host_room(8, tmp_path, tmp_path / "cgroups") is None  # it is not there


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """A process with a child."""
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Release Build\nGCC version: 12\n", False),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build\n", True),
        ("", None),
        (None, None),
    ],
)
def test_the_kernel_module_is_known_by_what_it_says_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expected: bool | None
) -> None:
    monkeypatch.delenv("TFGPU_SIMGPU", raising=False)
    (tmp_path / "driver/nvidia").mkdir(parents=True)
    if text is not None:
        (tmp_path / "driver/nvidia/version").write_text(text)

    assert facts.open_module(tmp_path) is expected


def test_descendants_are_found_and_only_those_with_the_driver_open_count(
    process: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = pids.descendants(process.pid)
    assert len(known) == 1
    assert known <= pids.descendants(os.getpid())
    assert facts.children_on_driver(process.pid) == ()
    monkeypatch.setattr(pids, "PROC", tmp_path)  # the system lists no children
    assert pids.descendants(process.pid) == known


def test_a_look_of_ours_is_in_nobodys_way(machine: Machine) -> None:
    machine.hang("nvmlInit", 600.0)
    before = pids.descendants(os.getpid())
    looking = PendingLook(60 * SLACK)
    [child] = pids.descendants(os.getpid()) - before
    until(lambda: opens_driver(child))

    assert child not in facts.children_on_driver(os.getpid())
    machine.clear_faults()
    assert looking.result().error is None


def test_what_has_ended_is_nobodys_and_cannot_be_looked_into() -> None:
    with subprocess.Popen(["true"]) as process:
        pass

    assert not facts.owned(process.pid)
    assert facts.managed_mappings(process.pid) is None


def test_what_it_holds_is_taken_from_the_driver_by_uuid() -> None:
    gpus = (Gpu(index=0, uuid="GPU-0", total=8 * GIB), Gpu(index=1, uuid="GPU-1", total=8 * GIB))
    rows = (Process(gpu="1", pid=os.getpid(), kind="C", held=GIB), Process(gpu="0", pid=1, kind="C", held=2 * GIB))
    snapshot = Snapshot(time=1.0, driver="580.65.06", gpus=gpus, processes=rows)
    read = facts.read(os.getpid(), snapshot, IDLE)

    assert (read.gpus, read.held) == ((gpus[1],), (HeldMemory("GPU-1", GIB),))
    assert not read.mps
    shared = [row._replace(kind="M+C") for row in rows]
    assert facts.read(os.getpid(), snapshot._replace(processes=tuple(shared)), IDLE).mps


def test_what_this_users_processes_hold_of_a_gpu_counts_as_free(process: subprocess.Popen[str]) -> None:
    gpu, held = Gpu(index=0, uuid="GPU-0", total=8 * GIB, free=GIB), {os.getpid(): 2 * GIB, process.pid: 3 * GIB}
    rows = [Process(gpu="0", pid=pid, kind="C", held=size) for pid, size in held.items()]
    rows += [Process(gpu="1", pid=process.pid, kind="C", held=GIB), Process(gpu="0", pid=2**22 + 1, kind="C", held=GIB)]
    [found] = facts.read(os.getpid(), Snapshot(time=1.0, gpus=(gpu,), processes=tuple(rows)), IDLE).gpus

    assert found.free == 6 * GIB


@pytest.mark.parametrize(
    ("opens", "theirs", "expected"), [(True, 2**22 + 1, True), (None, 2**22 + 1, True), (False, 2**22 + 1, False),
                                      (True, 1, False)]
)  # fmt: skip
def test_in_a_container_whose_driver_names_other_pids_it_is_not_known_what_it_holds(
    monkeypatch: pytest.MonkeyPatch, opens: bool | None, theirs: int, expected: bool
) -> None:
    """A pid that does not exist here may be this process's, if it has the driver open at all."""
    monkeypatch.setattr(facts, "opens_driver", lambda _: opens)
    rows = (Process(gpu="0", pid=theirs, kind="C", held=9 * GIB),)
    snapshot = Snapshot(time=1.0, gpus=(Gpu(index=0, uuid="GPU-0", total=16 * GIB),), processes=rows)

    assert facts.read(os.getpid(), snapshot, IDLE).unlisted is expected


def test_while_the_gpus_still_work_all_else_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    over, begun = threading.Event(), list[int]()

    def finish() -> None:
        begun.append(len(begun))
        over.wait(60)

    monkeypatch.setattr(registry, "finish", finish)
    try:
        assert inside.quieten(0.01, 1) == why.STILL_WORKING(0.01)
        assert within(30, lambda: 1) == 1
        assert inside.quieten(30, 1) == why.STILL_WORKING(30)  # they are not waited for twice
        assert begun == [0]
    finally:
        over.set()
    until(lambda: inside.quieten(30, 1) is None)


def test_a_report_of_ours_that_takes_long_is_told_with_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "finish", lambda: None)
    monkeypatch.setattr(cuda, "quieten", lambda _: False)

    assert inside.quieten(30, 1) == why.STILL_WORKING(1)


@pytest.mark.parametrize(
    ("file", "configured", "limit"),
    [("", "", None), ("64GiB", "", 64), ("64GiB", "8GiB", 8), ("64GiB", "90GiB", 64), ("", "8GiB", 8), ("lots", "", 0)],
)
def test_the_lower_of_the_administrators_and_the_configured_limit_holds_and_no_session_raises_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, configured: str, limit: int | None
) -> None:
    monkeypatch.setattr(policy, "FILE", tmp_path / "tfgpu_magic.toml")
    monkeypatch.setattr(facts, "_lowest", [])
    if file:
        policy.FILE.write_text(f'parking_memory = "{file}"\n')
    session = SimpleNamespace(parking_memory=configured)
    monkeypatch.setattr(host, "shell", object)
    monkeypatch.setattr(host, "magics", lambda _: session)

    expected = None if limit is None else limit * GIB
    assert facts.users_limit() == expected
    session.parking_memory = "500GiB"
    assert facts.users_limit() == (500 * GIB if expected is None else expected)
    session.parking_memory = "1GiB"
    assert facts.users_limit() == (0 if limit == 0 else GIB)
    session.parking_memory = ""
    assert facts.users_limit() == (0 if limit == 0 else GIB)


def known(pid: int, phase: Phase, *, disk: bool = False) -> ParkedProcess:
    return ParkedProcess(pid=pid, began=1, phase=phase, since=1.0, held=(HeldMemory("GPU-0", GIB),), disk=disk)


def test_what_others_of_this_user_have_parked_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    phases = {7: Phase.PARKED, 8: Phase.BACK, 9: Phase.LOCKING, os.getpid(): Phase.PARKED}
    monkeypatch.setattr(reported, "read", lambda: {pid: known(pid, phase) for pid, phase in phases.items()})

    assert facts.parked_by_others(os.getpid()) == 2 * GIB  # one that is about to go counts, too


def test_two_on_their_way_to_disk_do_not_count_on_the_same_room(monkeypatch: pytest.MonkeyPatch) -> None:
    phases = {7: Phase.PARKED, 8: Phase.CHECKPOINTING, 9: Phase.CHECKPOINTING}
    others = {pid: known(pid, phase, disk=True) for pid, phase in phases.items()}
    monkeypatch.setattr(reported, "read", lambda: others)
    monkeypatch.setattr(facts, "disk_place", lambda: DiskPlace("/scratch", 8 * GIB))
    monkeypatch.setattr(DiskPlace, "left", lambda _: 6 * GIB)  # which what has come there takes already

    found = facts.read(os.getpid(), Snapshot(time=1.0), IDLE, to_disk=True).disk
    assert found == ("/scratch", 4 * GIB)


def test_what_others_claim_of_the_hosts_memory_is_what_the_driver_lists_of_who_claims(machine: Machine) -> None:
    """Whatever they write: a claim of a process that holds nothing is none, and one that has ended is gone."""
    claim = "_kept.setdefault(0, __import__('contextlib').ExitStack())"
    enter = f"{claim}.enter_context(__import__('tfgpu_magic.parking.host_memory_claims', fromlist=['x']).claimed())"
    with (
        socket.socket(socket.AF_UNIX) as planted, talker(machine, "hold(256 * MIB)") as big,
        talker(machine) as empty, talker(machine, "hold(MIB)") as silent,
    ):  # fmt: skip
        snapshot = until(look, lambda found: len(found.processes) == 2)
        assert host_memory_claims.of_others(snapshot) == 0
        planted.bind(f"\0tfgpu_magic/park/{big.pid}")  # nobody hides another one's claim
        big.ask(enter)
        empty.ask(enter)
        assert host_memory_claims.of_others(snapshot) == snapshot.held_by(big.pid)["0"]
        until(
            lambda: (facts.host_room(os.getpid()) or 0) - (facts.read(silent.pid, snapshot, IDLE).host or 0),
            lambda less: abs(less - snapshot.held_by(big.pid)["0"]) < GIB // 8,  # others use memory meanwhile, too
        )
    assert host_memory_claims.of_others(snapshot) == 0


def test_a_gpu_whose_processes_are_not_listed_leaves_everything_open() -> None:
    gpus = (Gpu(index=0, uuid="GPU-0", listed=False, error="refused"),)

    assert facts.read(os.getpid(), Snapshot(time=1.0, gpus=gpus), IDLE).error == "refused"
