"""Real processes on a simulated machine are parked and come back; the driver and their memory are the judges."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.parking.conftest import PARKER, WORKER, Asking, Program, entry, helpers, park, phase
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.monitor.directory import BoardDirectory
from tfgpu_magic.parking import client, parker
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.checks import Inside
from tfgpu_magic.parking.messages import Progress
from tfgpu_magic.parking.record import Record
from tfgpu_magic.parking.settings import SOCKET
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.simgpu import Machine

Start = Callable[..., Program]


def test_its_memory_goes_and_comes_back_as_it_was(machine: Machine, programs: Start) -> None:
    program = programs(GIB)
    gone = park(program.pid, name="train.ipynb")

    assert gone.refusals == ()
    assert machine.held() == 0
    found = entry(program.pid)
    assert found is not None
    assert (found.phase, found.name, found.size) == (Phase.PARKED, "train.ipynb", GIB + CONTEXT)

    back = client.unpark(program.pid)

    assert back.done
    assert machine.held(pid=program.pid) == GIB + CONTEXT
    assert program.intact()
    until(lambda: machine.held() == GIB + CONTEXT)  # the placeholder is gone
    assert phase(program.pid) is Phase.BACK


def test_many_cycles_leave_nothing_behind(machine: Machine, programs: Start) -> None:
    program = programs(GIB)
    park(program.pid)
    client.unpark(program.pid)
    [helper] = helpers(machine, PARKER)
    before = helper.num_fds()
    for _ in range(10):
        assert park(program.pid).done
        assert client.unpark(program.pid).done

    assert helper.num_fds() <= before + 2
    assert len(helpers(machine, WORKER)) <= 2
    assert program.intact()
    found = entry(program.pid)
    assert found is not None
    assert found.returns == 11


def test_the_room_of_one_is_anothers_meanwhile(machine: Machine, programs: Start) -> None:
    one = programs(GIB)
    assert park(one.pid).done
    other = programs(GIB)
    said: list[Progress] = []
    coming = Asking(client.unpark, one.pid, tell=said.append)
    waits = until(lambda: next((each for each in said if each.step == "waits"), None))
    assert waits is not None
    room = waits.rooms[0]

    assert room.holders == ((other.pid, GIB + CONTEXT),)
    assert waits.seconds is not None
    assert machine.held(pid=one.pid) == 0

    assert park(other.pid).done
    assert coming.outcome().done
    assert one.intact()
    one.end()
    assert client.unpark(other.pid).done
    assert other.intact()


def test_who_waits_may_go_and_is_parked_as_before(machine: Machine, programs: Start) -> None:
    one = programs(GIB)
    park(one.pid)
    other = programs(GIB)
    left = threading.Event()
    coming = Asking(client.unpark, one.pid, tell=lambda _: left.set(), wanted=lambda: not left.is_set())

    assert coming.outcome().refusals == (why.Cancelled(),)
    assert phase(one.pid) is Phase.PARKED
    other.end()
    assert client.unpark(one.pid).done
    assert one.intact()


def test_ctrl_c_gives_the_prompt_back_and_the_process_stays_parked(machine: Machine, programs: Start) -> None:
    one = programs(GIB)
    park(one.pid)
    programs(GIB)

    def interrupt(said: Progress) -> None:
        if said.step == "waits":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.unpark(one.pid, tell=interrupt)
    assert phase(one.pid) is Phase.PARKED


def test_several_take_turns_and_none_finds_too_little(machine: Machine, programs: Start) -> None:
    several = [programs(GIB)]
    for _ in range(2):
        assert park(several[-1].pid).done
        several.append(programs(GIB))
    first, second, third = several
    waiting = [Asking(client.unpark, first.pid), Asking(client.unpark, second.pid)]
    time.sleep(0.5)
    assert park(third.pid).done
    turned = {Phase.BACK, Phase.PARKED}
    until(lambda: machine.held() == GIB + CONTEXT and {phase(first.pid), phase(second.pid)} == turned)
    there = first if phase(first.pid) is Phase.BACK else second
    assert there.intact()
    assert park(there.pid).done

    assert [one.outcome().refusals for one in waiting] == [(), ()]
    assert {phase(one.pid) for one in several} == {Phase.BACK, Phase.PARKED}
    assert Phase.FAILED not in {phase(one.pid) for one in several}


# --- traps ---


def test_a_stopped_process_is_refused_and_nothing_hangs(machine: Machine, programs: Start) -> None:
    program = programs()
    os.kill(program.pid, signal.SIGSTOP)
    try:
        assert park(program.pid).refusals == (why.Stopped(),)
    finally:
        os.kill(program.pid, signal.SIGCONT)
    assert program.intact()


def test_a_process_that_is_stopped_while_it_is_parked_waits_for_its_continuation(
    machine: Machine, programs: Start
) -> None:
    program = programs()
    park(program.pid)
    os.kill(program.pid, signal.SIGSTOP)
    assert client.unpark(program.pid).refusals == (why.Stopped(),)
    os.kill(program.pid, signal.SIGCONT)

    assert client.unpark(program.pid).done
    assert program.intact()


def test_managed_memory_is_refused(machine: Machine, programs: Start) -> None:
    program = programs(GIB, managed=GIB // 8)

    assert [type(one) for one in park(program.pid).refusals] == [why.ManagedMemory]
    assert program.intact()


def test_a_child_that_has_the_driver_open_is_refused(machine: Machine, programs: Start) -> None:
    program = programs()
    program.ask("fork")
    [child] = psutil.Process(program.pid).children()

    assert park(program.pid).refusals == (why.Children((child.pid,)),)


def test_the_open_kernel_module_is_refused_unless_it_is_allowed(machine: Machine, programs: Start) -> None:
    machine.set_driver("595.71.05", open_module=True)
    program = programs()

    assert park(program.pid).refusals == (why.OpenModule("595.71.05"),)
    assert park(program.pid, allow_open_module=True).done
    assert client.unpark(program.pid).done
    assert program.intact()


def test_an_old_driver_is_refused(machine: Machine, programs: Start) -> None:
    machine.set_driver("570.86.10")

    assert park(programs().pid).refusals == (why.OldDriver("570.86.10", "580"),)


@pytest.mark.parametrize("gpus", ["1x8GiB:mig=2"])
def test_a_part_of_a_gpu_is_refused(machine: Machine, programs: Start) -> None:
    assert why.MigGpu in [type(one) for one in park(programs().pid).refusals]


def test_what_fills_the_gpu_is_refused(machine: Machine, programs: Start) -> None:
    [refusal] = park(programs(GIB + GIB // 2).pid).refusals

    assert isinstance(refusal, why.NoWayBack)


def test_who_has_not_started_a_process_cannot_say_that_it_is_idle(machine: Machine, programs: Start) -> None:
    """Else a notebook could be parked in the middle of a cell by another one."""
    first = programs()
    code = (
        "import sys; from tfgpu_magic.parking import client; from tfgpu_magic.parking.checks import Inside; "
        "print(*(type(one).__name__ for one in client.park(int(sys.argv[1]), inside=Inside()).refusals))"
    )
    other = machine.run([sys.executable, "-c", code, str(first.pid)], capture_output=True, text=True)

    assert other.stdout.split() == ["NotAsked"]
    assert first.intact()


def test_what_could_be_parked_is_told_without_parking_it(machine: Machine, programs: Start) -> None:
    program = programs()

    assert client.check(program.pid, inside=Inside()).done
    assert client.check(program.pid, inside=Inside(busy=True)).refusals == (why.Busy(),)
    assert machine.held(pid=program.pid) == GIB + CONTEXT


def test_a_driver_that_hangs_is_given_up_and_the_process_goes_on(machine: Machine, programs: Start) -> None:
    program = programs()
    machine.hang("cuCheckpointProcessGetState", 60)
    outcome = park(program.pid)
    machine.clear_faults()

    assert [type(one) for one in outcome.refusals] == [why.Unanswered]
    assert program.intact()
    assert park(program.pid).done


def test_a_checkpoint_that_the_driver_declines_changes_nothing(machine: Machine, programs: Start) -> None:
    program = programs()
    machine.fault("cuCheckpointProcessCheckpoint", 801)
    outcome = park(program.pid)

    assert outcome.refusals == (why.Declined("cuCheckpointProcessCheckpoint", 801),)
    assert phase(program.pid) is None
    assert program.intact()


# --- what dies ---

STEPS = [
    ("park", Phase.LOCKING, "cuCheckpointProcessLock"),
    ("park", Phase.CHECKPOINTING, "cuCheckpointProcessCheckpoint"),
    ("park", Phase.CHECKPOINTING, ""),
    ("unpark", Phase.RESTORING, "cuCheckpointProcessRestore"),
    ("unpark", Phase.RESTORING, ""),
    ("unpark", Phase.UNLOCKING, "cuCheckpointProcessUnlock"),
]
"""The steps in which something is killed: before a call of the driver that takes its time, or in the middle of one."""


@pytest.mark.parametrize("victim", ["helper", "worker", "both", "process"])
@pytest.mark.parametrize(("deed", "step", "slow"), STEPS)
def test_nothing_is_lost_or_locked_whatever_is_killed(
    machine: Machine, programs: Start, deed: str, step: Phase, slow: str, victim: str
) -> None:
    program = programs(GIB)
    if deed == "unpark":
        assert park(program.pid).done
    if slow:
        machine.hang(slow, 2.0)
    else:
        machine.set_checkpoints(out=0.5, back=0.5)
    asking = Asking(park if deed == "park" else client.unpark, program.pid)
    until(lambda: phase(program.pid) is step or asking.done)  # a busy machine may be too late for it
    doomed = {
        "helper": helpers(machine, PARKER),
        "worker": helpers(machine, WORKER),
        "both": helpers(machine, PARKER) + helpers(machine, WORKER),
        "process": [psutil.Process(program.pid)],
    }[victim]
    for one in doomed:
        one.kill()
    machine.clear_faults()
    machine.set_checkpoints(out=0.0, back=0.0)
    asking.outcome()

    if victim == "process":
        program.end()
        assert phase(program.pid) is None
        until(lambda: machine.held() == 0)
        return
    settled = until(lambda: phase(program.pid), lambda found: found in (None, Phase.BACK, Phase.PARKED))
    if settled is Phase.PARKED:
        assert client.unpark(program.pid).done
    assert program.intact()
    until(lambda: machine.held() == GIB + CONTEXT)


def test_whoever_looks_next_sets_right_what_all_have_died_over(machine: Machine, programs: Start) -> None:
    program = programs()
    park(program.pid)
    machine.hang("cuCheckpointProcessUnlock", 5.0)
    code = "import sys; from tfgpu_magic.parking import client; client.unpark(int(sys.argv[1]))"
    asker = machine.popen([sys.executable, "-c", code, str(program.pid)])
    until(lambda: phase(program.pid) in (Phase.UNLOCKING, Phase.BACK))
    asker.kill()
    for one in helpers(machine, PARKER) + helpers(machine, WORKER):
        one.kill()
    asker.wait()
    machine.clear_faults()
    client.attend()

    until(lambda: phase(program.pid) is Phase.BACK)
    assert program.intact()
    assert not client.attend()


def test_a_helper_that_dies_while_all_is_quiet_leaves_its_record_to_the_next(machine: Machine, programs: Start) -> None:
    program = programs(GIB)
    park(program.pid)
    for helper in helpers(machine, PARKER):
        helper.kill()

    assert phase(program.pid) is Phase.PARKED
    assert client.unpark(program.pid).done
    assert program.intact()


def test_a_process_that_is_killed_while_it_is_parked_is_gone_from_the_record(machine: Machine, programs: Start) -> None:
    program = programs()
    park(program.pid)
    program.end()

    assert phase(program.pid) is None


def test_who_waits_is_handed_over_to_the_next_helper(machine: Machine, programs: Start) -> None:
    one = programs(GIB)
    park(one.pid)
    other = programs(GIB)
    said: list[Progress] = []
    coming = Asking(client.unpark, one.pid, tell=said.append)
    until(lambda: any(each.step == "waits" for each in said))
    [helper] = helpers(machine, PARKER)
    helper.terminate()
    until(lambda: helper.pid not in [each.pid for each in helpers(machine, PARKER)])
    other.end()

    assert coming.outcome().done
    assert one.intact()


def test_a_board_that_is_removed_takes_nothing_with_it(machine: Machine, programs: Start, tmp_path: Path) -> None:
    program = programs()
    park(program.pid)
    shutil.rmtree(tmp_path / "board")
    until(lambda: phase(program.pid) is Phase.PARKED)

    assert client.unpark(program.pid).done
    assert program.intact()


def test_two_helpers_are_never_there(machine: Machine, programs: Start) -> None:
    several = [programs(GIB // 4) for _ in range(3)]
    asking = [Asking(park, one.pid) for one in several]

    assert all(one.outcome().done for one in asking)
    until(lambda: len(helpers(machine, PARKER)) == 1)  # those that came too late are on their way out
    assert machine.held() == 0


def test_a_helper_with_nothing_to_do_ends(machine: Machine) -> None:
    with BoardDirectory() as place:
        held = parker.lock(place)
        assert held is not None
        asyncio.run(parker.Parker(place, held, Record(), sys.path, linger=0.1).run())

        assert not (place.path / place.name(SOCKET)).exists()


def test_a_helper_that_is_told_to_end_leaves_what_is_parked_to_the_next(machine: Machine, programs: Start) -> None:
    program = programs()
    park(program.pid)
    [helper] = helpers(machine, PARKER)
    helper.terminate()
    until(lambda: not helpers(machine, PARKER))
    until(lambda: not helpers(machine, WORKER))

    assert phase(program.pid) is Phase.PARKED
    assert client.unpark(program.pid).done
