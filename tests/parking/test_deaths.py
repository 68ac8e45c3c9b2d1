"""Whatever is killed at whatever step, no process stays locked, and none is lost that could be saved."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from tests.parking.conftest import PARKER, WORKER, Asking, Start, all_die, helpers, park, phase
from tests.processes import kill
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.parking import client
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.simgpu import Machine

STEPS = [
    ("park", "checks", "cuCheckpointProcessGetState", ["helper"]),
    ("park", "locking", "cuCheckpointProcessLock", ["helper", "worker", "both", "process"]),
    ("park", "checkpointing", "cuCheckpointProcessCheckpoint", ["helper"]),
    ("park", "checkpointing", "", ["helper", "worker", "process"]),
    ("unpark", "takes room", "cuMemAlloc_v2", ["helper"]),
    ("unpark", "restoring", "cuCheckpointProcessRestore", ["helper"]),
    ("unpark", "restoring", "", ["helper", "worker", "both", "process"]),
    ("unpark", "unlocking", "cuCheckpointProcessUnlock", ["helper"]),
]
"""The steps in which something is killed, by the record's phase or by what is told: before a call of the driver, which
hangs until it is over, or in the middle of a copy; and who is killed there. `test_any_step` has every call."""
DEATHS = [(deed, step, slow, victim) for deed, step, slow, victims in STEPS for victim in victims]


def slow_down(machine: Machine, slow: str) -> None:
    """Have a call of the driver hang, or copies take half a minute, until `go_on`."""
    if slow:
        machine.hang(slow, 600.0)
    else:
        machine.set_checkpoints(out=0.05, back=0.05)


def go_on(machine: Machine) -> None:
    """Let everything go on."""
    machine.clear_faults()
    machine.set_checkpoints(out=0.0, back=0.0)


@pytest.mark.parametrize(("deed", "step", "slow", "victim"), DEATHS)
def test_nothing_is_lost_or_locked_whatever_is_killed(
    machine: Machine, programs: Start, deed: str, step: str, slow: str, victim: str
) -> None:
    program = programs(GIB)
    if deed == "unpark":
        assert park(program.pid).done
    slow_down(machine, slow)
    said: list[str] = []
    asking = Asking(
        park if deed == "park" else client.unpark, program.pid, tell=lambda progress: said.append(progress.step)
    )
    until(lambda: step in said or phase(program.pid) == step, every=0.01)
    assert not asking.done
    doomed = {
        "helper": helpers(machine, PARKER),
        "worker": helpers(machine, WORKER),
        "both": helpers(machine),
        "process": [psutil.Process(program.pid)],
    }[victim]
    assert doomed
    kill(*doomed)
    go_on(machine)
    asking.outcome()

    if victim == "process":
        program.end()
        assert phase(program.pid) is None
        until(lambda: machine.held() == 0)
        return
    settled = until(lambda: phase(program.pid), lambda found: found in (None, Phase.BACK, Phase.PARKED))
    if settled is Phase.PARKED:
        assert client.unpark(program.pid).done
    assert program.ask("intact()")
    until(lambda: machine.held() == GIB + CONTEXT)


@pytest.mark.parametrize(("step", "slow"), [("waits", ""), *(way[1:3] for way in STEPS if way[0] == "unpark")])
def test_an_asker_that_is_killed_leaves_nothing_half_done(
    machine: Machine, programs: Start, step: str, slow: str
) -> None:
    program = programs(GIB)
    assert park(program.pid).done
    other = programs(GIB) if step == "waits" else None
    slow_down(machine, slow)
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
            until(lambda: phase(program.pid) == step, every=0.01)
        asker.kill()
    go_on(machine)
    if other is not None:
        other.end(signal.SIGKILL)

    settled: dict[Phase | None, int] = {Phase.BACK: GIB + CONTEXT, Phase.PARKED: 0}
    until(lambda: machine.held() == settled.get(phase(program.pid)))
    assert client.unpark(program.pid).done
    assert program.ask("intact()")


def test_whoever_looks_next_sets_right_what_all_have_died_over(machine: Machine, programs: Start) -> None:
    program = programs()
    park(program.pid)
    machine.hang("cuCheckpointProcessUnlock", 600.0)
    all_die(machine, program.pid, lambda: phase(program.pid) is Phase.UNLOCKING)
    machine.clear_faults()

    def look() -> Phase | None:
        client.attend()  # as a panel does with each look; what was killed has its lock for a moment longer
        return phase(program.pid)

    until(look, lambda found: found is Phase.BACK)
    assert program.ask("intact()")
    assert not client.attend()
