"""Whatever is killed at whatever step, no process stays locked, and none is lost that could be saved."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from tests.parking.conftest import PARKER, WORKER, Asking, Start, helpers, kill, park, phase
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.parking import client
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.simgpu import Machine

WAY_OUT = [
    ("checks", "cuCheckpointProcessGetState"),
    ("locking", "cuCheckpointProcessLock"),
    ("checkpointing", "cuCheckpointProcessCheckpoint"),
    ("checkpointing", ""),
]
WAY_BACK = [
    ("takes room", "cuMemAlloc_v2"),
    ("restoring", "cuCheckpointProcessRestore"),
    ("restoring", ""),
    ("unlocking", "cuCheckpointProcessUnlock"),
]
"""The steps in which something is killed, by the record's phase or by what is told: before a call of the driver that
takes its time, or in the middle of one."""
STEPS = [("park", *step) for step in WAY_OUT] + [("unpark", *step) for step in WAY_BACK]


@pytest.mark.parametrize("victim", ["helper", "worker", "both", "process"])
@pytest.mark.parametrize(("deed", "step", "slow"), STEPS)
def test_nothing_is_lost_or_locked_whatever_is_killed(
    machine: Machine, programs: Start, deed: str, step: str, slow: str, victim: str
) -> None:
    program = programs(GIB)
    if deed == "unpark":
        assert park(program.pid).done
    if slow:
        machine.hang(slow, 2.0)
    else:
        machine.set_checkpoints(out=0.5, back=0.5)
    said: list[str] = []
    asking = Asking(
        park if deed == "park" else client.unpark, program.pid, tell=lambda progress: said.append(progress.step)
    )
    # A busy machine may be too late for it.
    until(lambda: step in said or phase(program.pid) == step or asking.done, every=0.01)
    doomed = {
        "helper": helpers(machine, PARKER),
        "worker": helpers(machine, WORKER),
        "both": helpers(machine, PARKER) + helpers(machine, WORKER),
        "process": [psutil.Process(program.pid)],
    }[victim]
    kill(*doomed)
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


@pytest.mark.parametrize(("step", "slow"), [("waits", ""), *WAY_BACK])
def test_an_asker_that_is_killed_leaves_nothing_half_done(
    machine: Machine, programs: Start, step: str, slow: str
) -> None:
    program = programs(GIB)
    assert park(program.pid).done
    other = programs(GIB) if step == "waits" else None
    if slow:
        machine.hang(slow, 2.0)
    else:
        machine.set_checkpoints(back=0.5)
    code = (
        "import sys; from tfgpu_magic.parking import client; "
        "client.unpark(int(sys.argv[1]), tell=lambda said: print(said.step, flush=True))"
    )
    command = [sys.executable, "-c", code, str(program.pid)]
    with machine.popen(command, stdout=subprocess.PIPE, text=True) as asker:
        if step in ("waits", "takes room"):
            assert asker.stdout is not None
            assert step in map(str.strip, asker.stdout)
        else:
            until(lambda: phase(program.pid) in (step, Phase.BACK), every=0.01)
        asker.kill()
    machine.clear_faults()
    if other is not None:
        other.end()

    settled: dict[Phase | None, int] = {Phase.BACK: GIB + CONTEXT, Phase.PARKED: 0}
    until(lambda: machine.held() == settled.get(phase(program.pid)))
    assert client.unpark(program.pid).done
    assert program.intact()


def test_whoever_looks_next_sets_right_what_all_have_died_over(machine: Machine, programs: Start) -> None:
    program = programs()
    park(program.pid)
    machine.hang("cuCheckpointProcessUnlock", 5.0)
    code = "import sys; from tfgpu_magic.parking import client; client.unpark(int(sys.argv[1]))"
    asker = machine.popen([sys.executable, "-c", code, str(program.pid)])
    until(lambda: phase(program.pid) in (Phase.UNLOCKING, Phase.BACK))
    asker.kill()
    kill(*helpers(machine, PARKER), *helpers(machine, WORKER))
    asker.wait()
    machine.clear_faults()

    def look() -> Phase | None:
        client.attend()  # as a panel does with each look; what was killed has its lock for a moment longer
        return phase(program.pid)

    until(look, lambda found: found is Phase.BACK)
    assert program.intact()
    assert not client.attend()


def test_a_helper_that_dies_while_all_is_quiet_leaves_its_record_to_the_next(machine: Machine, programs: Start) -> None:
    program = programs(GIB)
    park(program.pid)
    kill(*helpers(machine, PARKER))

    assert phase(program.pid) is Phase.PARKED
    assert client.unpark(program.pid).done
    assert program.intact()


def test_a_process_that_is_killed_while_it_is_parked_is_gone_from_the_record(machine: Machine, programs: Start) -> None:
    program = programs()
    park(program.pid)
    program.end()

    assert phase(program.pid) is None
