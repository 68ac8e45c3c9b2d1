"""A kernel under `growth --release` gives back what TensorFlow does not use once no cell has run for a while."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.manager import start_new_kernel

from tests.jupyter import execute
from tests.magic.shell import cells
from tests.processes import program, run
from tests.sizes import CONTEXT, GIB, MIB
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

RELEASE = "%tf_gpu growth --release"
UP_AND_DOWN = """import tensorflow as tf
from tests.tf.on_machine import held
lives = tf.zeros(2**26); more = tf.zeros(2**28); del more; (before,) = held()"""
SOON, LATER, FOR_EVER, NEVER = (
    f"%config TfGpuMagics.release_after = {seconds}" for seconds in ("0.2", "600", "float('inf')", "0")
)
LIVES = range(256 * MIB + CONTEXT, 300 * MIB + CONTEXT)
ALL = range(GIB + 256 * MIB + CONTEXT, GIB + 300 * MIB + CONTEXT)

COUNTED = """
import threading
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.notebook import cell_watches
calls, give_back = [], cuda.give_back
def counting():
    gone = give_back()
    calls.append(None)
    return gone
cuda.give_back, cell_watches.PATIENCE = counting, 30 * SLACK
def timers():
    return [one for one in threading.enumerate() if one.name == "tfgpu_magic-idle-release"]
"""
"""Has each giving back counted, and cells wait for it however slow the machine is."""

SLOW = """
begun, may_end, ended = (threading.Event() for _ in range(3))
def slow():
    begun.set()
    may_end.wait()
    ended.set()
    return {}
cuda.give_back = slow
"""

BETWEEN = "# between cells\n"


def timer(seconds: str) -> str:
    return f"{BETWEEN}assert str([one.interval for one in timers()]) == {seconds!r}"


def long(inner: str) -> str:
    """Return a cell that runs longer than a timer does, and has another one run."""
    return f"begin = len(calls); {inner}; until(lambda: not timers()); assert len(calls) == begin"


SCENES = {
    "a timer runs where it is asked for": [RELEASE, LATER, UP_AND_DOWN, timer("[600.0]")],
    "one for ever does not end at once": [
        *(
            RELEASE,
            FOR_EVER,
            UP_AND_DOWN,
            f"{BETWEEN}assert [one.interval for one in timers()] == [threading.TIMEOUT_MAX]",
        )
    ],
    "none runs where it is off": [RELEASE, NEVER, UP_AND_DOWN, timer("[]")],
    "nor under growth that keeps": [LATER, "%tf_gpu growth", UP_AND_DOWN, timer("[]")],
    "nor without a policy": [LATER, UP_AND_DOWN, timer("[]")],
    "beside a running cell nothing is given back, and once all are over, it is": [
        *(RELEASE, SOON, UP_AND_DOWN, long("pass"), long("get_ipython().run_cell('pass')")),
        *(long("get_ipython().run_cell('')"), f"{BETWEEN}until(lambda: len(calls) == begin + 1)"),
    ],
    "a cell that begins meanwhile waits for the end of it": [
        *(RELEASE, UP_AND_DOWN, SLOW, SOON, f"{BETWEEN}begun.wait(); threading.Timer(0.2, may_end.set).start()"),
        "assert ended.is_set()",
    ],
    "each idle time gives back once": [
        RELEASE,
        SOON,
        *[
            *(UP_AND_DOWN, "calls.clear()", f"{BETWEEN}until(lambda: calls)"),
            f"{BETWEEN}until(lambda: not timers() or len(calls) > 1); assert len(calls) == 1",
        ]
        * 3,
    ],
    "unloading ends it": [
        *(RELEASE, LATER, UP_AND_DOWN, f"{BETWEEN}left = timers(); assert left"),
        f"{BETWEEN}get_ipython().run_line_magic('unload_ext', 'tfgpu_magic')",
        f"{BETWEEN}[one.join() for one in left]; assert not timers()",
    ],
}


@pytest.mark.parametrize("steps", SCENES.values(), ids=SCENES)
def test_it_is_given_back_only_when_the_kernel_rests(steps: list[str]) -> None:
    run("8GiB", _follow, *steps)


def _follow(*steps: str) -> int:
    """Run cells, and what is to be done between them; return what was held when something was freed."""
    names = InteractiveShell.instance().user_ns
    for step in (COUNTED, *steps):
        if step.startswith(BETWEEN):
            exec(step, names)
        else:
            (seen,) = cells(step)
            assert not seen.error, seen
    return int(names["before"])


def test_an_idle_kernel_gives_back_and_what_lives_stays() -> None:
    with Machine.create("8GiB") as machine, program(machine, _follow, RELEASE, SOON, UP_AND_DOWN) as kernel:
        assert kernel.answer in ALL
        until(lambda: machine.held(pid=kernel.pid) in LIVES)


def test_beside_a_thread_of_the_users_nothing_is_given_back() -> None:
    waits = f"{UP_AND_DOWN}; end = threading.Event(); t = threading.Timer(0, end.wait); t.start()"
    beside = f"{BETWEEN}until(lambda: not timers()); assert not calls"
    # Once it has ended, it is after the next cell, beside a timer that only waits.
    ends = "end.set(); t.join(); t = threading.Timer(1000, print); t.daemon = True; t.start()"
    after = f"{BETWEEN}until(lambda: len(calls) == 1)"
    run("8GiB", _follow, RELEASE, SOON, waits, beside, ends, after)


TRAINS = """
import asyncio, pathlib
async def train(over):
    global beside
    while not timers():
        await asyncio.sleep(0)
    over_time = threading.Thread(target=timers()[0].function)  # at once: a timer's own time could end before this
    over_time.start()
    over_time.join()
    beside = len(calls)
    pathlib.Path(over).touch()
"""
"""A task of the kernel's main thread that keeps it while the timer does what it does when its time is over."""


def test_beside_a_task_of_a_kernels_own_loop_nothing_is_given_back(tmp_path: Path) -> None:
    over = tmp_path / "over"
    with Machine.create("8GiB") as machine:
        manager, client = start_new_kernel(env=machine.environ(), extra_arguments=["--log-level=50"])
        try:
            execute(client, f"%load_ext tfgpu_magic\n{RELEASE}\nimport tensorflow as tf; tf.zeros(2**26)")
            execute(client, f"{COUNTED}\n{TRAINS}")
            execute(client, f"{LATER}\ntask = asyncio.get_running_loop().create_task(train({str(over)!r}))")
            until(over.exists)
            beside = execute(client, f"{SOON}\nprint(beside)")
            after = until(lambda: int(execute(client, "print(len(calls))")), every=1)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)

    assert beside == "0\n"
    assert after  # once the loop is idle, it is
