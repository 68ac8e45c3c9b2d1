"""Real processes on a simulated machine are parked and come back; the driver and their memory are the judges.

Some park themselves, with the real TensorFlow, or as `tests/gpu` has them do on a real GPU.
"""

from __future__ import annotations

import signal
import sys
import time

import pytest

from tests.gpu import holding
from tests.parking import on_machine
from tests.parking.conftest import Asking, Start, on_its_own, park, phase, state, unpark, workers
from tests.processes import run
from tests.simgpu.checkpoint_on_machine import descriptors
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.messages import ParkOutcome, Progress
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.parking.transfers import Park
from tfgpu_magic.simgpu import Machine


@pytest.mark.smoke
def test_its_memory_goes_and_comes_back_as_it_was(machine: Machine, programs: Start) -> None:
    program = programs(GIB)
    gone = park(program.pid)
    assert gone.refusals == ()
    assert machine.held() == 0
    assert gone.entry is not None
    assert (gone.entry.phase, gone.entry.size) == (Phase.PARKED, GIB + CONTEXT)
    assert park(program.pid) == ParkOutcome(entry=gone.entry)  # it is so already
    back = unpark(program.pid)

    assert back.done
    assert unpark(program.pid).done
    assert machine.held(pid=program.pid) == GIB + CONTEXT
    assert program.ask("intact()")
    until(lambda: machine.held() == GIB + CONTEXT)  # the placeholder is gone
    assert phase(program.pid) is Phase.BACK


def test_many_cycles_leave_nothing_behind(machine: Machine) -> None:
    with on_its_own(machine, GIB) as program:

        def cycle() -> None:
            assert program.ask("away()")
            assert len(workers(machine)) == 1
            assert program.ask("back()")

        cycle()
        before = descriptors(program.pid)
        for _ in range(10):
            cycle()

        # What is closed on a thread may be so a moment later.
        until(lambda: descriptors(program.pid) <= before and not workers(machine))
        assert program.ask("intact()")
        assert program.ask("own.known.returns") == 11


def test_the_room_of_one_is_anothers_meanwhile(machine: Machine, programs: Start) -> None:
    one = programs(GIB)
    assert park(one.pid).done
    other, said = programs(GIB), list[Progress]()
    coming = Asking(unpark, one.pid, tell=said.append)
    until(lambda: any(each.step == "waits" for each in said))
    waits = next(each for each in said if each.step == "waits")
    room = waits.rooms[0]
    assert room.holders == ((other.pid, GIB + CONTEXT),)
    assert waits.seconds is not None
    assert machine.held(pid=one.pid) == 0

    assert park(other.pid).done
    assert coming.outcome().done
    assert one.ask("intact()")
    one.end(signal.SIGKILL)
    assert unpark(other.pid).done
    assert other.ask("intact()")


def test_a_process_with_very_many_open_files_is_answered(machine: Machine) -> None:
    """Else a notebook with a thousand files open would never come back."""
    code = (
        "import os; from tfgpu_magic.parking.gpu_state import GpuState; from tfgpu_magic.parking.checks import Inside; "
        "from tfgpu_magic.parking.transfers import Park; "
        "files = [os.open('/dev/null', os.O_RDONLY) for _ in range(1100)]; "
        "print(*(one.reason.name for one in Park(GpuState(os.getpid()), Inside()).check().refusals))"
    )
    done = machine.run(
        ["bash", "-c", 'ulimit -n 2048 && exec "$@"', "bash", sys.executable, "-c", code],
        capture_output=True, text=True,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("holds-nothing\n", "")


def test_several_take_turns_and_none_finds_too_little(machine: Machine, programs: Start) -> None:
    several = [programs(GIB)]
    for _ in range(2):
        assert park(several[-1].pid).done
        several.append(programs(GIB))
    first, second, third = several
    waiting = [Asking(unpark, first.pid), Asking(unpark, second.pid)]
    time.sleep(0.5)
    assert park(third.pid).done
    turned = {Phase.BACK, Phase.PARKED}
    until(lambda: machine.held() == GIB + CONTEXT and {phase(first.pid), phase(second.pid)} == turned)
    there = first if phase(first.pid) is Phase.BACK else second
    assert there.ask("intact()")
    assert park(there.pid).done

    assert [one.outcome().refusals for one in waiting] == [(), ()]
    assert {phase(one.pid) for one in several} == {Phase.BACK, Phase.PARKED}
    assert Phase.FAILED not in {phase(one.pid) for one in several}


def test_what_could_be_parked_is_told_without_parking_it(machine: Machine, programs: Start) -> None:
    program = programs()

    assert Park(state(program.pid), Inside()).check().done
    assert Park(state(program.pid), Inside(against=(why.BUSY(),))).check().refusals == (why.BUSY(),)
    assert machine.held(pid=program.pid) == GIB + CONTEXT
    assert workers(machine) == []


# --- which park themselves ---


@pytest.mark.parametrize("gpus", ["1x8GiB"])
@pytest.mark.parametrize("allocator", ["", "cuda_malloc_async"])
def test_a_trained_model_comes_back_bit_by_bit_and_is_trained_on(machine: Machine, allocator: str) -> None:
    growth = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    seen = run(machine, on_machine.trained, env=growth | ({"TF_GPU_ALLOCATOR": allocator} if allocator else {}))

    assert (seen.refusals, seen.same, seen.held[1]) == ([], True, 0)
    assert seen.held[0] == seen.held[2] > CONTEXT


def test_a_gpu_that_tensorflow_fills_is_not_left_since_the_way_back_is_not_sure(machine: Machine) -> None:
    """Of a small GPU TensorFlow takes nearly all by default; a limit or growth leaves the room that a return needs."""
    seen = run(machine, on_machine.trained)

    assert set(seen.refusals) == {"no-way-back"}
    assert seen.same
    assert seen.held[0] == seen.held[1] == seen.held[2]


def test_plain_memory_comes_back_as_it_was(machine: Machine) -> None:
    seen = run(machine, on_machine.filled, GIB)

    assert (seen.refusals, seen.same) == ([], True)
    assert seen.held == (GIB + CONTEXT, 0, GIB + CONTEXT)


def test_managed_memory_is_refused(machine: Machine) -> None:
    assert run(machine, on_machine.with_managed_memory) == ["managed-memory"]


@pytest.mark.parametrize("gpus", ["1x3GiB"])
@pytest.mark.parametrize("open_module", [False, True])
def test_a_process_comes_back_but_under_the_open_module_where_it_ends_suspended(
    machine: Machine, open_module: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TFGPU_TEST_OPEN_MODULE", raising=False)
    machine.set_driver("595.71.05", open_module=open_module)
    if open_module:
        machine.fault("cuCheckpointProcessRestore", 999)  # which would be told
    seen: holding.Suspended = run(machine, holding.suspended, "plain", fresh=True)

    assert (seen.trouble, seen.held[1], seen.same) == ("", None, None if open_module else True)
    assert (seen.against, seen.mappings) == (("open-module",) if open_module else (), 1)
    assert (machine.hung(), machine.held()) == (False, 0)
