"""What real drivers' checkpoints die of is refused with its reason, or survived in bounded time; nothing is changed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cgroups import cgroup_of
from tests.parking.conftest import Asking, Start, on_its_own, own_phase, park, phase, state, unpark
from tests.simgpu.talking import Talker, talker
from tests.sizes import CONTEXT, GIB, MIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.parking.transfers import Park
from tfgpu_magic.simgpu import Machine

CHILD = "from tests.simgpu.checkpoint_on_machine import hold; import signal; hold(64 * 2**20); signal.pause()"


# --- what it is, and what it does ---


def test_one_that_waits_for_a_gpu_without_its_memory_is_gone_and_leaves_nothing(machine: Machine, held: Talker) -> None:
    """The crash is the driver's: so a process is brought back before any code of its user runs."""
    assert park(held.pid).done
    held.say("synchronise('context')")

    assert held.end() == -signal.SIGSEGV
    assert machine.held() == 0


def test_one_that_uses_no_gpu_is_refused(machine: Machine, held: Talker) -> None:
    with talker(machine, "OK") as without:
        assert park(without.pid).refusals == (why.HOLDS_NOTHING(),)
    assert held.ask("intact()")


def test_work_that_does_not_end_is_waited_for_in_bounded_time_and_goes_on(machine: Machine, held: Talker) -> None:
    machine.hang("cuLaunchKernel", 60 + 15 * SLACK)
    held.ask("launch(beside=True)")
    with talker(machine) as other:
        until(lambda: other.ask(f"locks_in_vain({held.pid})"))

    until(lambda: park(held.pid).refusals, lambda found: found == (why.STILL_WORKING(10.0),), seconds=15)
    assert phase(held.pid) is None
    assert held.ask("intact()")


@pytest.mark.parametrize("driver", ["580.178.04", "595.84"])
def test_managed_memory_is_refused_and_the_context_lives(machine: Machine, held: Talker, driver: str) -> None:
    """A checkpoint would be refused by the driver, too, and from 595 on be the context's end."""
    machine.set_driver(driver)
    held.ask("hold(MIB, function='cuMemAllocManaged')")

    assert [one.reason for one in park(held.pid).refusals] == [why.MANAGED_MEMORY]
    assert held.ask("intact()")


@pytest.mark.parametrize(
    "begin",
    [
        "os.fork() or threading.Event().wait()",
        f"os.posix_spawn(sys.executable, [sys.executable, '-c', {CHILD!r}], os.environ)",  # with a context of its own
    ],
    ids=["fork", "spawn"],
)
def test_a_child_that_has_the_driver_open_is_refused(machine: Machine, held: Talker, begin: str) -> None:
    child = held.ask(begin)
    try:
        until(lambda: machine.held(pid=child) == 64 * MIB + CONTEXT or "fork" in begin)

        assert park(held.pid).refusals == (why.CHILDREN((child,)),)
    finally:
        os.kill(child, signal.SIGKILL)
    assert held.ask("intact()")


@pytest.mark.parametrize("refusal", [why.NCCL(), why.SHARED_MEMORY(), why.THREADS(("loader",))])
def test_what_only_it_can_know_is_refused_when_it_says_so(machine: Machine, held: Talker, refusal: why.Refusal) -> None:
    machine.set_driver("595.84")
    held.ask("start_nccl()")

    assert park(held.pid, Inside(against=(refusal,))).refusals == (refusal,)
    assert held.ask("intact()")


def test_what_nobody_knew_of_ends_the_process_alone(machine: Machine) -> None:
    machine.set_driver("595.84")
    with on_its_own(machine) as held:
        held.ask("start_nccl()")
        held.say("away()")

        assert held.end() == -signal.SIGABRT
    until(lambda: machine.held() == 0)
    with talker(machine, "hold(64 * MIB)") as third:
        assert park(third.pid).done


def test_a_process_that_something_else_has_locked_is_left_as_it_is(machine: Machine, held: Talker) -> None:
    with talker(machine) as other:
        assert other.ask(f"call('Lock', {held.pid})") == 0
        assert park(held.pid).refusals == (why.ELSEWHERE(),)
        assert other.ask(f"call('Unlock', {held.pid})") == 0
    assert held.ask("intact()")


# --- its machine, the driver, the GPUs, the memory ---


def test_the_open_kernel_module_is_refused_unless_it_is_allowed(machine: Machine, programs: Start) -> None:
    machine.set_driver("595.71.05", open_module=True)
    program = programs()

    assert park(program.pid).refusals == (why.OPEN_MODULE("595.71.05"),)
    assert park(program.pid, Inside(allow_open_module=True)).done
    assert unpark(program.pid).done
    assert program.ask("intact()")


@pytest.mark.parametrize(
    ("gpus", "change", "size", "reason"),
    [
        ("1x2GiB", lambda machine: machine.set_driver("570.86.10"), GIB, why.OLD_DRIVER),
        ("1x2GiB", lambda machine: Path(f"{machine.path}.nvidia-version").unlink(), GIB, why.UNKNOWN_MODULE),
        ("1x2GiB", lambda machine: machine.fault("nvmlDeviceGetMemoryInfo", 3), GIB, why.UNIFIED_MEMORY),  # as on GB10
        ("1x2GiB", lambda _: None, GIB + GIB // 2, why.NO_WAY_BACK),
        ("1x8GiB:mig=2", lambda _: None, GIB, why.MIG_GPU),
    ],
)
def test_what_speaks_against_it_is_refused_and_the_process_goes_on(
    machine: Machine, programs: Start, change: Callable[[Machine], object], size: int, reason: why.Reason
) -> None:
    program = programs(size)
    change(machine)

    assert reason in [one.reason for one in park(program.pid).refusals]
    assert program.ask("intact()")


def test_of_a_full_gpu_others_memory_is_in_the_way_back_and_ones_own_is_not(machine: Machine, programs: Start) -> None:
    program, other = programs(GIB // 2), programs(3 * GIB // 4)
    assert park(program.pid).done
    assert park(other.pid).done
    assert unpark(program.pid).done

    machine.add_foreign("768MiB@0")
    assert [one.reason for one in park(program.pid).refusals] == [why.NO_WAY_BACK]
    assert program.ask("intact()")


def test_a_cgroup_without_room_for_the_copy_is_refused(machine: Machine, held: Talker) -> None:
    machine.set_checkpoints(host_memory=True)
    with cgroup_of(768 * MIB) as cgroup:
        (cgroup / "cgroup.procs").write_text(str(held.pid))
        try:
            [refusal] = park(held.pid).refusals

            assert refusal.reason is why.HOST_MEMORY
            needed, left = refusal.values
            assert needed == 256 * MIB + CONTEXT
            assert isinstance(left, int)
            assert left <= 768 * MIB
            assert held.ask("intact()")
        finally:
            held.end(signal.SIGKILL)


def test_two_that_go_at_once_do_not_both_count_on_the_same_host_memory(machine: Machine) -> None:
    machine.set_checkpoints(host_memory=True, out=0.1)
    with on_its_own(machine) as one, on_its_own(machine) as other, cgroup_of(2 * GIB) as cgroup:
        for program in (one, other):
            (cgroup / "cgroup.procs").write_text(str(program.pid))
        try:
            one.say("away()")
            until(lambda: own_phase(machine), {"checkpointing", "parked"}.__contains__, despite=FileNotFoundError)

            refused = "[refusal.reason.name for refusal in Park(own, Inside()).park().refusals]"
            assert other.ask(refused) == ["host-memory"]
            assert one.hear() is True
            assert other.ask("intact()")
        finally:
            for program in (one, other):
                program.end(signal.SIGKILL)


def test_a_driver_that_hangs_is_given_up_and_the_process_goes_on(machine: Machine, programs: Start) -> None:
    program = programs()
    machine.hang("cuCheckpointProcessGetState", 60)
    outcome = park(program.pid)
    machine.clear_faults()

    assert [one.reason for one in outcome.refusals] == [why.UNANSWERED]
    assert program.ask("intact()")
    assert park(program.pid).done


def test_a_checkpoint_that_the_driver_declines_changes_nothing(machine: Machine, programs: Start) -> None:
    program = programs()
    machine.fault("cuCheckpointProcessCheckpoint", 801)
    outcome = park(program.pid)

    assert outcome.refusals == (why.DECLINED("cuCheckpointProcessCheckpoint", 801),)
    assert phase(program.pid) is None
    assert program.ask("intact()")


# --- the way back ---


def test_a_restore_that_finds_too_little_room_all_the_same_is_said_to_be_final(machine: Machine, held: Talker) -> None:
    """Somebody takes the room in the moment between the placeholder's end and the restore."""
    assert park(held.pid).done
    machine.hang("cuCheckpointProcessRestore", 4 + 4 * SLACK)
    coming = Asking(unpark, held.pid)
    until(lambda: phase(held.pid) is Phase.RESTORING)
    other = until(lambda: machine.add_neighbour("1400MiB@0"), despite=SimulatorError)
    refusals = coming.outcome().refusals
    machine.clear_faults()

    assert refusals == (why.DECLINED("cuCheckpointProcessRestore", 2), why.LOST())
    assert phase(held.pid) is Phase.FAILED
    other.stop()
    assert unpark(held.pid).refusals == (why.LOST(),)  # never on hope
    held.end(signal.SIGKILL)
    until(lambda: machine.held() == 0)


def test_a_gpu_that_is_lost_is_waited_for_and_nothing_is_restored(machine: Machine, held: Talker) -> None:
    assert park(held.pid).done
    machine.lose(0)
    waited: list[str] = []
    coming = Asking(unpark, held.pid, tell=lambda said: waited.append(said.step))
    until(lambda: "waits" in waited)
    assert phase(held.pid) is Phase.PARKED
    machine.restore(0)

    assert coming.outcome().done
    assert held.ask("intact()")


def test_a_gpu_that_is_lost_in_a_restore_is_the_end_and_said_to_be(machine: Machine, held: Talker) -> None:
    assert park(held.pid).done
    machine.hang("cuCheckpointProcessRestore", 4 + 4 * SLACK)
    coming = Asking(unpark, held.pid)
    until(lambda: phase(held.pid) is Phase.RESTORING)
    machine.lose(0)

    assert coming.outcome().refusals[-1] == why.LOST()
    assert phase(held.pid) is Phase.FAILED


def test_while_a_copy_is_under_way_everybody_is_told_from_the_record(machine: Machine, held: Talker) -> None:
    """The driver would not answer until it is done."""
    machine.set_checkpoints(out=0.15 / SLACK, back=0.15 / SLACK)
    for deed, step in ((park, Phase.CHECKPOINTING), (unpark, Phase.RESTORING)):
        asking = Asking(deed, held.pid)
        until(lambda: phase(held.pid), {step}.__contains__, every=0.01)
        found = Park(state(held.pid), Inside()).check().entry
        assert found is not None
        assert found.phase is phase(held.pid) is step
        assert asking.outcome().done
    assert held.ask("intact()")
