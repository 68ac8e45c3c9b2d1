"""What speaks against parking on a machine, its driver, module, GPUs or memory, is refused with its reason."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cgroups import cgroup_of
from tests.parking.conftest import Start, on_its_own, own_phase, park, phase, unpark
from tests.simgpu.talking import Talker
from tests.sizes import CONTEXT, GIB, MIB
from tests.waiting import until
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.simgpu import Machine


def test_the_open_kernel_module_is_refused_unless_it_is_allowed(machine: Machine, programs: Start) -> None:
    machine.set_driver("595.71.05", open_module=True)
    program = programs()

    assert park(program.pid).refusals == (why.OPEN_MODULE("595.71.05"),)
    assert park(program.pid, allow_open_module=True).done
    assert unpark(program.pid).done
    assert program.ask("intact()")


@pytest.mark.parametrize(
    ("change", "size", "reason"),
    [
        (lambda machine: machine.set_driver("570.86.10"), GIB, why.OLD_DRIVER),
        (lambda machine: Path(f"{machine.path}.nvidia-version").unlink(), GIB, why.UNKNOWN_MODULE),
        (lambda machine: machine.fault("nvmlDeviceGetMemoryInfo", 3), GIB, why.UNIFIED_MEMORY),  # as on GB10
        (lambda _: None, GIB + GIB // 2, why.NO_WAY_BACK),
    ],
)
def test_what_speaks_against_it_is_refused_and_the_process_goes_on(
    machine: Machine, programs: Start, change: Callable[[Machine], object], size: int, reason: why.Reason
) -> None:
    program = programs(size)
    change(machine)

    assert reason in [one.reason for one in park(program.pid).refusals]
    assert program.ask("intact()")


def test_of_a_full_gpu_what_other_users_hold_is_in_the_way_back_and_ones_own_is_not(
    machine: Machine, programs: Start
) -> None:
    program, other = programs(GIB // 2), programs(3 * GIB // 4)
    assert park(program.pid).done
    assert park(other.pid).done
    assert unpark(program.pid).done

    machine.add_foreign("768MiB@0")
    assert [one.reason for one in park(program.pid).refusals] == [why.NO_WAY_BACK]
    assert program.ask("intact()")


@pytest.mark.parametrize("gpus", ["1x8GiB:mig=2"])
def test_a_part_of_a_gpu_is_refused(machine: Machine, programs: Start) -> None:
    assert why.MIG_GPU in [one.reason for one in park(programs().pid).refusals]


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
