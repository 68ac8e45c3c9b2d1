"""The simulated driver checkpoints processes as CUDA's documentation says, and with what real drivers die of."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cgroups import cgroup_of
from tests.simgpu.checkpoint_on_machine import (
    CHECKPOINTED,
    FAILED,
    ILLEGAL_STATE,
    INVALID_VALUE,
    LAUNCH_FAILED,
    LOCKED,
    NOT_INITIALIZED,
    NOT_READY,
    NOT_SUPPORTED,
    OK,
    OPERATING_SYSTEM,
    OUT_OF_MEMORY,
    RUNNING,
    UNAVAILABLE,
    descriptors,
    resident,
    uvm_mappings,
)
from tests.simgpu.talking import MOMENT, PATIENCE, Talker, talker
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
    with Machine.create("8GiB") as machine, two(machine, "hold_more_than_used(GIB, 3 * GIB)") as (held, caller):
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        with machine.add_neighbour("5GiB@0"):  # which leaves room for what is used of it
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
    with Machine.create() as machine, talker(machine, "hold(64 * MIB)") as held, talker(machine) as caller:
        machine.set_checkpoints(host_memory=True)
        assert caller.ask(f"cycle({held.pid}, 2)") == 0
        before = descriptors(held.pid) + descriptors(caller.pid)
        size = resident(held.pid)
        for _ in range(10):  # a busy machine has time for each
            assert caller.ask(f"cycle({held.pid}, 5)") == 0
        # The last answer's socket may be closed a moment later than it is heard.
        until(lambda: descriptors(held.pid) + descriptors(caller.pid) <= before)
        assert abs(resident(held.pid) - size) < 8 * MIB
        assert held.ask("intact()")
        assert machine.held() == 64 * MIB + CONTEXT


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


@contextmanager
def two(machine: Machine, *first: str) -> Iterator[tuple[Talker, Talker]]:
    """Start a program that holds memory, or does what it is told first, and one that checkpoints it."""
    with talker(machine, *(first or ("hold(256 * MIB)",))) as held, talker(machine, "cuda('cuInit', 0)") as caller:
        yield held, caller


@pytest.mark.parametrize("what", ["context", "stream", "runtime"])
def test_a_wait_for_a_device_or_a_stream_minds_no_lock_and_crashes_while_memory_is_away(what: str) -> None:
    with Machine.create() as machine, two(machine) as (held, caller):
        assert caller.ask(f"call('Lock', {held.pid})") == OK
        assert held.ask(f"synchronise({what!r})") == OK  # at once
        assert caller.ask(f"call('Checkpoint', {held.pid})") == OK
        held.say(f"synchronise({what!r})")
        assert held.end() == -signal.SIGSEGV


def test_a_restore_without_room_is_final_and_keeps_what_it_took() -> None:
    with Machine.create("8GiB") as machine, two(machine, "hold(4 * GIB)") as (held, caller):
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        with machine.add_neighbour("6GiB@0"):
            free = machine.gpus()[0].free
            assert caller.ask(f"call('Restore', {held.pid})") == OUT_OF_MEMORY
            assert machine.gpus()[0].free == 0
        assert machine.held() == machine.held(pid=held.pid) == free
        assert caller.ask("nvml(0, 'nvmlDeviceGetComputeRunningProcesses')") == []
        assert caller.ask(f"calls({held.pid}, 'Restore', 'Unlock', 'Checkpoint', 'Restore')") == [
            OPERATING_SYSTEM,
            ILLEGAL_STATE,
            ILLEGAL_STATE,
            OPERATING_SYSTEM,
        ]
        assert caller.ask(f"state({held.pid})") == [OK, CHECKPOINTED]
        held.end(signal.SIGKILL)
        assert machine.held() == 0


def test_a_restore_with_room_for_one_of_two_gpus_keeps_both() -> None:
    with Machine.create("2x8GiB") as machine, two(machine, "hold(GIB)", "hold(4 * GIB, ordinal=1)") as (held, caller):
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        with machine.add_neighbour("6GiB@1"):
            assert caller.ask(f"call('Restore', {held.pid})") == OUT_OF_MEMORY
        assert machine.held(gpu=0) == GIB + CONTEXT
        assert 0 < machine.held(gpu=1) < 4 * GIB
        assert caller.ask("nvml(0, 'nvmlDeviceGetComputeRunningProcesses')") == []


@pytest.mark.parametrize("step", ["Checkpoint", "Restore"])
def test_a_query_waits_for_what_is_under_way(step: str) -> None:
    with Machine.create() as machine, two(machine) as (held, caller), talker(machine, "cuda('cuInit', 0)") as other:
        before = {"Checkpoint": ["Lock"], "Restore": ["Lock", "Checkpoint"]}[step]
        assert other.ask(f"calls({held.pid}, *{before})") == [OK] * len(before)
        begin(machine, held, caller, step)
        assert other.ask(f"state({held.pid})") == [OK, CHECKPOINTED if step == "Checkpoint" else LOCKED]
        assert caller.hear() == OK


def begin(machine: Machine, held: Talker, caller: Talker, step: str, *, rate: float = 0.4) -> None:
    """Have the caller begin a step that takes a second or more, and return while it is under way."""
    machine.set_checkpoints(out=rate, back=rate, host_memory=step == "Checkpoint")
    size = resident(held.pid)
    if step == "Lock":
        machine.hang("cuLaunchKernel", 2 + 4 * SLACK)
        held.ask("launch(beside=True)")
        until(lambda: caller.ask(f"locks_in_vain({held.pid})"))
    caller.say(f"call({step!r}, {held.pid})")
    if step == "Checkpoint":
        until(lambda: resident(held.pid) > size + 32 * MIB, every=0.01)
    elif step == "Restore":
        until(machine.held, every=0.01)  # it has its room, and copies
    else:
        assert not caller.answers(MOMENT * SLACK)


@pytest.mark.parametrize(("step", "then"), [("Lock", LOCKED), ("Checkpoint", CHECKPOINTED), ("Restore", LOCKED)])
def test_what_a_caller_began_and_died_in_is_completed(step: str, then: int) -> None:
    steps = ["Lock", "Checkpoint", "Restore"]
    with Machine.create() as machine, two(machine) as (held, caller), talker(machine, "cuda('cuInit', 0)") as next_one:
        before = steps[: steps.index(step)]
        assert next_one.ask(f"calls({held.pid}, *{before})") == [OK] * len(before)
        begin(machine, held, caller, step)
        caller.end(signal.SIGKILL)
        assert next_one.ask(f"state({held.pid})") == [OK, then]
        after = ["Restore", "Unlock"] if then == CHECKPOINTED else ["Unlock"]
        assert next_one.ask(f"calls({held.pid}, *{after})") == [OK] * len(after)
        assert held.ask("intact()")


def test_a_process_killed_midway_gives_everything_back() -> None:
    with Machine.create() as machine, two(machine) as (held, caller):
        assert caller.ask(f"call('Lock', {held.pid})") == OK
        begin(machine, held, caller, "Checkpoint", rate=0.01)
        os.kill(held.pid, signal.SIGKILL)
        assert caller.hear() == OPERATING_SYSTEM
        assert caller.ask(f"state({held.pid})")[0] in (NOT_INITIALIZED, OPERATING_SYSTEM)
        until(lambda: machine.held() == 0)


@pytest.mark.parametrize("question", ["call('Lock', {}, 100)", "state({})"])
def test_a_stopped_process_answers_nobody_whatever_the_timeout_is(question: str) -> None:
    with Machine.create() as machine, two(machine) as (held, caller), talker(machine, "cuda('cuInit', 0)") as other:
        held.stop()
        for asker in (caller, other):
            asker.say(question.format(held.pid))
            assert not asker.answers(3 * MOMENT)
        other.end(signal.SIGKILL)  # what it asked for is not done
        os.kill(held.pid, signal.SIGCONT)
        assert caller.hear() in (OK, [OK, RUNNING])
        assert caller.ask(f"state({held.pid})") == [OK, LOCKED if "Lock" in question else RUNNING]


def test_a_restore_of_a_stopped_process_hangs_and_is_not_done_once_its_caller_gave_up() -> None:
    with Machine.create() as machine, two(machine) as (held, caller), talker(machine, "cuda('cuInit', 0)") as other:
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        held.stop()
        other.say(f"call('Restore', {held.pid})")
        assert not other.answers(MOMENT)
        other.end(signal.SIGKILL)
        os.kill(held.pid, signal.SIGCONT)
        assert caller.ask(f"state({held.pid})") == [OK, CHECKPOINTED]
        assert caller.ask(f"unpark({held.pid})") == [OK, OK]
        assert held.ask("intact()")


@pytest.mark.parametrize(("driver", "afterwards"), [("580.178.04", OK), ("595.84", LAUNCH_FAILED)])
def test_managed_memory_is_refused_and_its_mapping_seen(driver: str, afterwards: int) -> None:
    with Machine.create() as machine, two(machine) as (held, caller):
        machine.set_driver(driver)
        assert uvm_mappings(held.pid) == 1
        at = held.ask("hold(64 * MIB, function='cuMemAllocManaged')")
        assert uvm_mappings(held.pid) == 2
        assert caller.ask(f"park({held.pid})") == [OK, NOT_SUPPORTED]
        assert caller.ask(f"call('Unlock', {held.pid})") == OK
        assert held.ask(f"copied({at})") == afterwards


@pytest.mark.parametrize(("driver", "outcome"), [("580.178.04", [OK, OK]), ("595.84", [OK, OPERATING_SYSTEM])])
def test_nccl_in_a_process_is_its_end_on_595(driver: str, outcome: list[int]) -> None:
    with Machine.create() as machine, two(machine, "hold(MIB)", "start_nccl()") as (held, caller):
        machine.set_driver(driver)
        assert caller.ask(f"park({held.pid})") == outcome
        assert outcome[1] == OK or held.end() == -signal.SIGABRT


@pytest.mark.parametrize(
    ("driver", "shut_down", "outcome"),
    [("595.84", False, OK), ("610.00.00", True, OK), ("610.00.00", False, OPERATING_SYSTEM)],
)
def test_an_nvml_unloaded_without_its_end_is_that_of_a_locked_process_on_610(
    driver: str, shut_down: bool, outcome: int
) -> None:
    first = ["hold(MIB)", f"unload_nvml(shut_down={shut_down})"]
    with Machine.create() as machine, two(machine, *first) as (held, caller):
        machine.set_driver(driver)
        assert caller.ask(f"call('Lock', {held.pid})") == outcome
        assert outcome == OK or held.end() == -signal.SIGSEGV


def test_on_another_gpu_a_process_keeps_its_contents_and_the_bus_id_of_the_old_one() -> None:
    with Machine.create("2x8GiB,8GiB:sm=16") as machine, two(machine) as (held, caller):
        old, new, other = machine.gpus()
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        assert caller.ask(f"restore_to({held.pid}, {old.uuid!r}, {other.uuid!r})") == INVALID_VALUE  # of another kind
        assert caller.ask(f"restore_to({held.pid}, {new.uuid!r}, {new.uuid!r})") == INVALID_VALUE  # nothing was there
        assert caller.ask(f"restore_to({held.pid}, {old.uuid!r}, {new.uuid!r})") == OK
        assert caller.ask(f"call('Unlock', {held.pid})") == OK
        assert [machine.held(gpu=gpu) for gpu in range(3)] == [0, 256 * MIB + CONTEXT, 0]
        assert held.ask("intact()")
        assert held.ask("seen()")[1][0] == new.uuid.removeprefix("GPU-").replace("-", "")
        assert held.ask("bus_id(0)") == old.pci


def test_where_one_process_only_may_use_a_gpu_another_ones_context_is_the_end_of_what_comes_back() -> None:
    """Whoever takes the room for it with a context of its own keeps it away."""
    with Machine.create("8GiB:mode=exclusive") as machine, two(machine) as (held, caller):
        assert caller.ask(f"park({held.pid})") == [OK, OK]
        assert caller.ask("allocate(MIB)") == [OK, OK, OK]
        assert caller.ask(f"call('Restore', {held.pid})") == UNAVAILABLE
        caller.end(signal.SIGKILL)
        with talker(machine) as next_one:
            assert next_one.ask(f"call('Restore', {held.pid})") == OPERATING_SYSTEM


def test_a_mig_instance_is_refused() -> None:
    with Machine.create("40GiB:mig=2") as machine, two(machine) as (held, caller):
        assert caller.ask(f"park({held.pid})") == [OK, NOT_SUPPORTED]
        assert caller.ask(f"call('Unlock', {held.pid})") == OK
        assert held.ask("intact()")


THERE_AND_BACK = ["Lock", "Checkpoint", "Restore", "Unlock"]
ENDS = {"kill": "os.kill(os.getpid(), 9)", "itself": "sys.exit(0)", "reset": "cuda('cuDevicePrimaryCtxReset_v2', 0)"}
"""Ways in which a context ends, as what its process does."""


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize(
    ("open_module", "steps", "hangs"),
    [(True, THERE_AND_BACK, True), (True, [], False), (False, THERE_AND_BACK, False)],
    ids=["restored", "never restored", "proprietary"],
)
def test_the_end_of_a_live_restored_context_hangs_the_host_on_the_open_module_however_it_ends(
    open_module: bool, steps: list[str], hangs: bool, end: str
) -> None:
    with Machine.create() as machine, two(machine) as (held, caller):
        machine.set_driver("595.71.05", open_module=open_module)
        version = machine.path.with_name("machine.nvidia-version").read_text()
        assert ("Open Kernel Module" in version, "595.71.05" in version) == (open_module, True)
        assert caller.ask(f"calls({held.pid}, *{steps})") == [OK] * len(steps)
        held.say(end)
        assert held.answers(PATIENCE)  # or is at its end
        assert end == ENDS["reset"] or held.end() in (0, -signal.SIGKILL)
        assert machine.hung() == hangs
        caller.say("nvml(None, 'nvmlDeviceGetCount')")
        assert not hangs or not caller.answers(MOMENT)
        machine.clear_faults()
        assert caller.hear() == 1


@pytest.mark.parametrize("end", [ENDS["kill"], "os._exit(0)", ENDS["itself"]])
def test_the_end_of_what_is_suspended_hangs_nothing(end: str) -> None:
    with Machine.create() as machine, two(machine) as (held, caller):
        machine.set_driver("595.71.05", open_module=True)
        assert not any(caller.ask(f"calls({held.pid}, *{[*THERE_AND_BACK, 'Lock', 'Checkpoint']})"))
        held.say(end)
        held.end()

        assert not machine.hung()
        assert machine.held() == 0
