"""The simulated driver checkpoints processes as its documentation says: CUDA Driver API, "CUDA Checkpointing"."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cgroups import cgroup_of
from tests.simgpu.checkpoint_on_machine import (
    CHECKPOINTED,
    FAILED,
    ILLEGAL_STATE,
    INVALID_VALUE,
    LOCKED,
    NOT_INITIALIZED,
    NOT_READY,
    NOT_SUPPORTED,
    OK,
    OPERATING_SYSTEM,
    OUT_OF_MEMORY,
    RUNNING,
    descriptors,
    resident,
)
from tests.simgpu.talking import MOMENT, talker
from tests.sizes import CONTEXT, GIB, MIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.simgpu import Machine


def test_each_step_leads_to_the_next_and_no_other_has_an_effect() -> None:
    follows = {
        RUNNING: ("Lock", LOCKED),
        LOCKED: ("Checkpoint", CHECKPOINTED),
        CHECKPOINTED: ("Restore", LOCKED),
    }
    with Machine.create() as machine, talker(machine, "hold(64 * MIB)") as held, talker(machine) as caller:
        for state, (step, then) in follows.items():
            wrong = {"Lock", "Checkpoint", "Restore", "Unlock"} - {step, "Unlock" if state == LOCKED else step}
            assert [caller.ask(f"call({other!r}, {held.pid})") for other in wrong] == [ILLEGAL_STATE] * len(wrong)
            assert caller.ask(f"state({held.pid})") == [OK, state]
            assert caller.ask(f"call({step!r}, {held.pid})") == OK
            assert caller.ask(f"state({held.pid})") == [OK, then]
        assert caller.ask(f"call('Unlock', {held.pid})") == OK
        assert caller.ask(f"state({held.pid})") == [OK, RUNNING]
        assert held.ask("intact()")


def test_a_process_that_is_not_there_or_has_no_cuda_is_told_apart() -> None:
    with Machine.create() as machine, talker(machine) as caller:
        with subprocess.Popen(["true"]) as gone:
            os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet waited for
            assert caller.ask(f"state({gone.pid})")[0] == NOT_INITIALIZED
        with talker(machine, "OK") as without:
            for step in ("Lock", "Checkpoint", "Restore", "Unlock"):
                assert caller.ask(f"call({step!r}, {without.pid})") == NOT_INITIALIZED
                assert caller.ask(f"call({step!r}, {gone.pid})") == OPERATING_SYSTEM
        assert caller.ask(f"state({gone.pid})")[0] == caller.ask(f"thread_of({gone.pid})")[0] == OPERATING_SYSTEM
        assert caller.ask("state(0)")[0] == INVALID_VALUE


def test_arguments_are_zeros_but_for_a_timeout_and_the_caller_has_started_cuda() -> None:
    with Machine.create() as machine, talker(machine, "hold(64 * MIB)") as held, talker(machine) as caller:
        pid = held.pid
        assert caller.ask(f"cuda('cuCheckpointProcessLock', {pid}, None)") == NOT_INITIALIZED
        assert caller.ask(f"call('Lock', {pid}, 1000, 7)") == INVALID_VALUE
        assert caller.ask(f"call('Lock', {pid}, 1000)") == OK
        assert caller.ask(f"call('Checkpoint', {pid}, 7)") == INVALID_VALUE
        assert caller.ask(f"call('Checkpoint', {pid}, 0)") == OK
        assert caller.ask(f"call('Restore', {pid}, 0, 0, 0, 7)") == INVALID_VALUE
        assert caller.ask(f"call('Restore', {pid}, 0, 0, 1)") == INVALID_VALUE  # a pair of GPUs, and none named
        assert caller.ask(f"calls({pid}, 'Restore', 'Unlock')") == [OK, OK]


def test_an_old_driver_has_no_checkpoints() -> None:
    with Machine.create() as machine, talker(machine, "hold(64 * MIB)") as held, talker(machine) as caller:
        machine.set_driver("565.57.01")

        assert caller.ask(f"call('Lock', {held.pid})") == caller.ask(f"state({held.pid})")[0] == NOT_SUPPORTED


def test_the_restore_thread_is_the_processs_own_and_hears_no_signal() -> None:
    with Machine.create() as machine, talker(machine, "hold(64 * MIB)") as held, talker(machine) as caller:
        code, thread = caller.ask(f"thread_of({held.pid})")
        status = Path(f"/proc/{held.pid}/task/{thread}/status").read_text().split()

    assert code == OK
    assert status[status.index("Name:") + 1] == "cuda-restore"
    assert int(status[status.index("SigBlk:") + 1], 16) & 1 << signal.SIGINT - 1


def test_the_account_falls_to_nothing_and_rises_again_and_nvml_says_so() -> None:
    both = ("hold(GIB)", "hold(2 * GIB, ordinal=1)")
    with Machine.create("2x8GiB") as machine, talker(machine, *both) as held, talker(machine) as caller:
        listed = "[nvml(gpu, 'nvmlDeviceGetComputeRunningProcesses') for gpu in range(2)]"
        before = [[[held.pid, GIB + CONTEXT]], [[held.pid, 2 * GIB + CONTEXT]]]
        assert caller.ask(listed) == before
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        assert caller.ask(listed) == [[], []]
        assert machine.held() == 0
        with talker(machine) as other:
            assert other.ask("allocate(7 * GIB)") == [OK, OK, OK]
        assert caller.ask(f"unpark({held.pid})") == [OK, OK]
        assert caller.ask(listed) == before


@pytest.mark.parametrize("kind", ["plain", "pool", "mapped"])
def test_contents_come_back_to_the_same_addresses(kind: str) -> None:
    with Machine.create() as machine, talker(machine) as held, talker(machine) as caller:
        at = held.ask(f"hold_{kind}(256 * MIB)")
        for _ in range(3):
            assert caller.ask(f"park({held.pid})") == [OK, OK]
            assert caller.ask(f"unpark({held.pid})") == [OK, OK]
            assert held.ask("intact()")
        assert held.ask(f"copied({at})") == OK


def test_what_a_pool_reserves_goes_and_comes_back_whether_it_is_used_or_not() -> None:
    with Machine.create("8GiB") as machine, talker(machine) as held, talker(machine) as caller:
        held.ask("hold_more_than_used(GIB, 3 * GIB)")
        before = machine.held(pid=held.pid)
        for _ in range(2):
            assert caller.ask(f"park({held.pid})") == [OK, OK]
            assert machine.held() == 0
            with talker(machine) as other:
                assert other.ask("allocate(7 * GIB)") == [OK, OK, OK]
            assert caller.ask(f"unpark({held.pid})") == [OK, OK]
            assert machine.held() == before == 4 * GIB + CONTEXT
            assert held.ask("pool()") == [4096, 1024]
            assert held.ask("intact()")
        assert held.ask("trim()") == OK
        assert machine.held() == GIB + CONTEXT
        assert held.ask("intact()")


def test_a_restore_needs_room_for_what_a_pool_reserves_too() -> None:
    with Machine.create("8GiB") as machine, talker(machine) as held, talker(machine) as caller:
        held.ask("hold_more_than_used(GIB, 3 * GIB)")
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        with machine.add_neighbour("5GiB@0"):
            assert caller.ask(f"call('Restore', {held.pid})") == OUT_OF_MEMORY


def test_a_wait_that_minds_no_lock_gives_nothing_of_a_pool_back_until_it_is_unlocked() -> None:
    with Machine.create("8GiB") as machine, talker(machine) as held, talker(machine) as caller:
        held.ask("hold_more_than_used(GIB, 3 * GIB, waits=False)")
        assert caller.ask(f"call('Lock', {held.pid})") == OK
        assert held.ask("synchronise('context')") == OK
        assert machine.held() == 4 * GIB + CONTEXT
        assert caller.ask(f"call('Unlock', {held.pid})") == OK
        assert held.ask("synchronise('context')") == OK
        assert machine.held() == GIB + CONTEXT


def test_contents_cannot_be_read_while_they_are_away() -> None:
    with Machine.create() as machine, talker(machine) as held, talker(machine) as caller:
        at = held.ask("hold(64 * MIB)")
        assert isinstance(held.ask(f"look({at})"), int)
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        held.say(f"look({at})")
        assert held.end() == -signal.SIGSEGV


@pytest.mark.parametrize(
    "what",
    ["launch()", "gemm()", "hold(MIB) > 0", "hold_pool(MIB) > 0", "trim()", "intact()", "synchronise('event')"],
)
def test_launches_copies_allocations_and_waits_for_events_wait_from_lock_to_unlock(what: str) -> None:
    first = ("hold(64 * MIB)", "hold_more_than_used(MIB, MIB)")
    with Machine.create() as machine, talker(machine, *first) as held, talker(machine) as caller:
        expected = held.ask(what)
        assert caller.ask(f"call('Lock', {held.pid})") == OK
        held.say(what)
        for step in ("Checkpoint", "Restore"):
            assert not held.answers(MOMENT)
            assert caller.ask(f"call({step!r}, {held.pid})") == OK
        assert not held.answers(MOMENT)
        assert caller.ask(f"call('Unlock', {held.pid})") == OK
        assert held.hear() == expected


def test_a_lock_waits_for_work_that_goes_on_and_gives_up_in_time() -> None:
    with Machine.create() as machine, talker(machine, "hold(64 * MIB)") as held, talker(machine) as caller:
        machine.hang("cuLaunchKernel", 3600)
        held.ask("launch(beside=True)")
        until(lambda: caller.ask(f"locks_in_vain({held.pid})"))
        assert caller.ask(f"call('Lock', {held.pid}, 100)") == NOT_READY
        assert caller.ask(f"state({held.pid})") == [OK, RUNNING]
        assert held.ask("intact()")  # it runs on

    with Machine.create() as machine, talker(machine, "hold(64 * MIB)") as held, talker(machine) as caller:
        machine.hang("cuLaunchKernel", 2 + 2 * SLACK)
        held.ask("launch(beside=True)")
        until(lambda: caller.ask(f"locks_in_vain({held.pid})"))
        assert caller.ask(f"call('Lock', {held.pid})") == OK


def test_a_process_may_end_while_its_memory_is_away_and_a_kill_ends_it_at_once() -> None:
    with Machine.create() as machine, talker(machine) as caller:
        for end, status in (("os._exit(0)", 0), ("os.kill(os.getpid(), 9)", -signal.SIGKILL)):
            with talker(machine, "hold(64 * MIB)") as held:
                assert caller.ask(f"park({held.pid})") == [OK, OK]
                held.say(end)
                assert held.end() == status
                assert caller.ask(f"call('Restore', {held.pid})") == OPERATING_SYSTEM


def test_an_interrupt_waits_until_the_memory_is_back() -> None:
    with Machine.create() as machine, talker(machine, "hold(64 * MIB)") as held, talker(machine) as caller:
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        held.say("intact()")
        assert not held.answers(MOMENT)
        os.kill(held.pid, signal.SIGINT)
        assert not held.answers(MOMENT)
        assert caller.ask(f"unpark({held.pid})") == [OK, OK]
        assert held.end() != 0  # KeyboardInterrupt


def test_a_child_with_a_context_of_its_own_stays() -> None:
    holds = "hold(GIB)"
    with Machine.create() as machine, talker(machine, holds) as held, talker(machine, holds) as child:
        with talker(machine) as caller:
            assert caller.ask(f"park({held.pid})") == [OK, OK]
        assert machine.held() == machine.held(pid=child.pid) == GIB + CONTEXT
        assert child.ask("intact()")


def test_a_gpu_that_is_lost_meanwhile_is_the_end() -> None:
    with Machine.create() as machine, talker(machine, "hold(64 * MIB)") as held, talker(machine) as caller:
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        machine.lose(0)
        assert caller.ask(f"call('Restore', {held.pid})") != OK
        assert caller.ask(f"state({held.pid})") == [OK, FAILED]
        assert caller.ask(f"calls({held.pid}, 'Restore', 'Unlock')") == [ILLEGAL_STATE] * 2


def test_fifty_cycles_leave_nothing_behind() -> None:
    with Machine.create() as machine, talker(machine, "hold(256 * MIB)") as held, talker(machine) as caller:
        machine.set_checkpoints(host_memory=True)
        assert caller.ask(f"cycle({held.pid}, 2)") == 0
        before = descriptors(held.pid) + descriptors(caller.pid)
        size = resident(held.pid)
        assert caller.ask(f"cycle({held.pid}, 50)") == 0
        # The last answer's socket may be closed a moment later than it is heard.
        until(lambda: descriptors(held.pid) + descriptors(caller.pid) <= before)
        assert abs(resident(held.pid) - size) < 8 * MIB
        assert held.ask("intact()")
        assert machine.held() == 256 * MIB + CONTEXT


def test_programs_that_work_in_threads_lose_nothing_in_twenty_cycles() -> None:
    with Machine.create() as machine, talker(machine, "hold(64 * MIB)", "work_for_ever()") as held:
        with talker(machine) as caller:
            assert caller.ask(f"cycle({held.pid}, 20)") == 0
        assert held.ask("intact()")
        assert held.process.poll() is None


def test_what_is_away_takes_as_much_of_the_hosts_memory_until_it_is_back() -> None:
    with Machine.create() as machine, talker(machine, "hold(256 * MIB)") as held, talker(machine) as caller:
        machine.set_checkpoints(host_memory=True)
        before = resident(held.pid)
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        assert abs(resident(held.pid) - before - 256 * MIB - CONTEXT) < 32 * MIB  # the system counts roughly
        assert caller.ask(f"unpark({held.pid})") == [OK, OK]
        assert abs(resident(held.pid) - before) < 32 * MIB


def test_a_cgroup_without_room_for_it_kills_the_process_midway() -> None:
    with (
        cgroup_of(128 * MIB) as cgroup,
        Machine.create() as machine,
        talker(machine, "hold(256 * MIB)") as held,
        talker(machine) as caller,
    ):
        machine.set_checkpoints(host_memory=True)
        (cgroup / "cgroup.procs").write_text(str(held.pid))
        assert caller.ask(f"park({held.pid})") == [OK, OPERATING_SYSTEM]
        assert held.end() == -signal.SIGKILL
        assert machine.held() == 0
