"""Whatever is killed or stopped at whatever step, no process stays locked, and none is lost that could be saved."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests.parking.conftest import Asking, Start, on_its_own, own_phase, park, phase, state, unpark, workers
from tests.processes import kill
from tests.simgpu.talking import Talker
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.parking.states import CudaState, Phase
from tfgpu_magic.simgpu import Machine

STEPS = [
    ("park", "checks", "cuCheckpointProcessGetState"),
    ("park", "locking", "cuCheckpointProcessLock"),
    ("park", "checkpointing", "cuCheckpointProcessCheckpoint"),
    ("park", "checkpointing", ""),
    ("unpark", "takes room", "cuMemAlloc_v2"),
    ("unpark", "restoring", "cuCheckpointProcessRestore"),
    ("unpark", "restoring", ""),
    ("unpark", "unlocking", "cuCheckpointProcessUnlock"),
]
"""The steps in which something is killed, by the phase or by what is told: before a call of the driver, which hangs
until it is over, or in the middle of a copy. `test_any_step` has every call."""


def go_on(machine: Machine) -> None:
    machine.clear_faults()
    machine.set_checkpoints(out=0.0, back=0.0)


@pytest.mark.parametrize(("deed", "step", "slow"), STEPS)
def test_nothing_is_lost_or_locked_where_a_worker_is_killed(
    machine: Machine, programs: Start, deed: str, step: str, slow: str
) -> None:
    program = programs(GIB)
    if deed == "unpark":
        assert park(program.pid).done
    machine.hang(slow, 600.0) if slow else machine.set_checkpoints(out=0.05, back=0.05)  # until `go_on`
    said: list[str] = []
    asking = Asking(park if deed == "park" else unpark, program.pid, tell=lambda progress: said.append(progress.step))
    until(lambda: step in said or phase(program.pid) == step, every=0.01)
    assert not asking.done
    kill(*until(lambda: workers(machine)))
    go_on(machine)
    asking.outcome()

    own = state(program.pid)
    until(lambda: own.settle() is None or own.phase in (Phase.BACK, Phase.PARKED))
    if own.phase is Phase.PARKED:
        assert unpark(program.pid).done
    assert program.ask("intact()")
    until(lambda: machine.held() == GIB + CONTEXT)


@pytest.fixture
def own(machine: Machine) -> Iterator[Talker]:
    with on_its_own(machine) as own:
        yield own


def test_one_that_is_killed_while_it_is_parked_leaves_nothing(machine: Machine, own: Talker) -> None:
    assert own.ask("away()")
    assert machine.held() == 0
    assert len(workers(machine)) == 1
    own.end(signal.SIGKILL)

    until(lambda: not workers(machine))
    assert machine.held() == 0


def test_what_it_has_forked_keeps_no_worker_when_it_is_killed(machine: Machine, own: Talker) -> None:
    """A child has the worker's orders open, too."""
    assert own.ask("away()")
    child = own.ask("os.fork() or __import__('time').sleep(3600)")
    own.end(signal.SIGKILL)
    try:
        until(lambda: not workers(machine))
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_worker_that_is_told_to_end_leaves_nothing_locked(machine: Machine, programs: Start) -> None:
    program = programs()
    own = state(program.pid)
    own.worker().call("lock", program.pid, 10.0, seconds=60.0)
    (worker,) = until(lambda: workers(machine))
    worker.terminate()
    worker.wait(60)  # until it is reaped: its first thread may be a zombie while others still end

    assert own.state() is CudaState.RUNNING
    assert program.ask("intact()")


@pytest.mark.parametrize("step", ["locking", "restoring"])
def test_one_that_is_killed_in_a_call_leaves_nothing(machine: Machine, own: Talker, step: str) -> None:
    if step == "restoring":
        assert own.ask("away()")
    machine.hang("cuCheckpointProcessLock" if step == "locking" else "cuCheckpointProcessRestore", 2.0)
    own.say("away()" if step == "locking" else "back()")
    until(lambda: own_phase(machine) == step, despite=FileNotFoundError)
    own.end(signal.SIGKILL)
    machine.clear_faults()

    until(lambda: not workers(machine))
    until(lambda: machine.held() == 0)


def test_one_stopped_midway_is_left_alone_by_its_worker_and_set_right_later(machine: Machine, own: Talker) -> None:
    """The process cannot give its worker up: the worker's own alarm ends it."""
    own.ask("own.__setattr__('timeouts', Timeouts(look=60.0, lock=1.0, state=1.0))")
    machine.hang("cuCheckpointProcessLock", 600.0)
    own.say("away()")
    until(lambda: own_phase(machine) == "locking", despite=FileNotFoundError)
    own.stop()
    until(lambda: not workers(machine))
    machine.clear_faults()
    os.kill(own.pid, signal.SIGCONT)

    assert own.hear() is False
    assert own.ask("own.settle() is None")
    assert own.ask("intact()")
    assert own.ask("away()")


def test_processes_that_take_turns_by_themselves_come_back_each_time(machine: Machine) -> None:
    """Each moves its own state alone; what they have in common is the table of leases."""
    with contextlib.ExitStack() as started:
        several = []
        for _ in range(4):
            one = started.enter_context(on_its_own(machine, GIB))
            assert one.ask("away()")
            several.append(one)
        for one in several:
            one.say("turns(5)")

        assert [one.hear() for one in several] == 4 * [5 * [True]]
        assert machine.held() == 0
        for one in several:
            assert one.ask("back() and intact() and away()")
