"""A kernel under `growth --release` gives back what TensorFlow does not use once no cell has run for a while."""

from __future__ import annotations

import threading
from pathlib import Path
from unittest import mock

import pytest
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.manager import start_new_kernel

from tests.jupyter import execute
from tests.magic.shell import cells
from tests.processes import program, run
from tests.sizes import CONTEXT, GIB, MIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.notebook import cell_watches
from tfgpu_magic.simgpu import Machine

RELEASE = "%tf_gpu growth --release"
UP_AND_DOWN = (
    "import tensorflow as tf, time; from tests.tf.on_machine import held\n"
    "lives = tf.zeros(2**26); more = tf.zeros(2**28); del more; (before,) = held()"
)
SOON, LATER, FOR_EVER, NEVER = (
    f"%config TfGpuMagics.release_after = {seconds}" for seconds in ("0.2", "600", "float('inf')", "0")
)
LIVES = range(256 * MIB + CONTEXT, 300 * MIB + CONTEXT)
ALL = range(GIB + 256 * MIB + CONTEXT, GIB + 300 * MIB + CONTEXT)


def test_an_idle_kernel_gives_back_and_what_lives_stays() -> None:
    with Machine.create("8GiB") as machine, program(machine, _cells, RELEASE, SOON, UP_AND_DOWN) as kernel:
        assert kernel.answer in ALL
        until(lambda: machine.held(pid=kernel.pid) in LIVES)


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ((RELEASE, LATER), [600.0]),
        ((RELEASE, FOR_EVER), [threading.TIMEOUT_MAX]),  # more than that, and it would end at once
        ((RELEASE, NEVER), []),
        ((LATER, "%tf_gpu growth"), []),
        ((LATER,), []),
    ],
)
def test_a_timer_runs_only_where_it_is_asked_for(lines: tuple[str, ...], seconds: list[float]) -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, _after, *lines, UP_AND_DOWN) == seconds


def test_beside_a_running_cell_nothing_is_given_back() -> None:
    with Machine.create("8GiB") as machine:
        inside, after = run(machine, _during_cells)

    assert inside == [0, 0, 0]
    assert after == 1  # and once they are over, it is


def test_a_cell_that_begins_meanwhile_waits_for_the_end_of_it() -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, _begin_meanwhile)


def test_beside_a_thread_of_the_users_nothing_is_given_back() -> None:
    with Machine.create("8GiB") as machine:
        beside, after = run(machine, _beside_a_thread)

    assert beside == 0
    assert after == 1  # once it has ended, it is after the next cell, beside a timer that only waits


def test_beside_a_task_of_a_kernels_own_loop_nothing_is_given_back(tmp_path: Path) -> None:
    over = tmp_path / "over"
    with Machine.create("8GiB") as machine:
        manager, client = start_new_kernel(env=machine.environ(), extra_arguments=["--log-level=50"])
        try:
            execute(client, f"%load_ext tfgpu_magic\n{RELEASE}\nimport tensorflow as tf; tf.zeros(2**26);{_TRAINS}")
            execute(client, f"{LATER}\ntask = asyncio.get_running_loop().create_task(train({str(over)!r}))")
            until(over.exists)
            beside = execute(client, f"{SOON}\nprint(beside)")
            after = until(lambda: int(execute(client, "print(len(calls))")), every=1)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)

    assert beside == "0\n"
    assert after  # once the loop is idle, it is


def test_each_idle_time_gives_back_once() -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, _again_and_again) == [1, 1, 1]


def test_unloading_ends_it() -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, _unloaded) == (True, False)


# --- what runs in a kernel on the machine ---

_TRAINS = """
import asyncio, pathlib, threading
from tfgpu_magic.frameworks import cuda
calls, give_back = [], cuda.give_back
def counting():
    calls.append(None)
    return give_back()
cuda.give_back = counting
def timers():
    return [thread for thread in threading.enumerate() if thread.name == "tfgpu_magic-idle-release"]
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


def _cells(*sources: str) -> int:
    """Run cells, and return what was held at the end of the one that freed something."""
    seen = cells(*sources)
    assert not any(one.error for one in seen), seen
    return int(InteractiveShell.instance().user_ns["before"])


def _counted() -> list[None]:
    """Have each giving back counted, and cells wait for it however slow the machine is."""
    calls: list[None] = []
    give_back = cuda.give_back

    def counting() -> dict[str, int]:
        gone = give_back()
        calls.append(None)
        return gone

    mock.patch.object(cuda, "give_back", counting).start()
    mock.patch.object(cell_watches, "PATIENCE", 30 * SLACK).start()
    return calls


def _timers() -> list[threading.Timer]:
    threads = (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
    return [timer for timer in threads if timer.name == "tfgpu_magic-idle-release"]


def _after(*sources: str) -> list[float]:
    """Return the seconds of the timers that run after cells."""
    _cells(*sources)
    return [timer.interval for timer in _timers()]


def _during_cells() -> tuple[list[int], int]:
    """Return how often it was given back amid a long cell, amid two that have run others, and after the last one."""
    calls = _counted()
    names = InteractiveShell.instance().user_ns
    names["calls"], names["rests"] = calls, lambda: until(lambda: not _timers())
    _cells(RELEASE, SOON, UP_AND_DOWN)
    found = []
    for inner in ("pass", "get_ipython().run_cell('pass')", "get_ipython().run_cell('')"):
        _cells(f"begin = len(calls); {inner}; rests(); during = len(calls) - begin")
        found.append(names["during"])
    return found, until(lambda: len(calls) - names["begin"])


def _beside_a_thread() -> tuple[int, int]:
    """Return how often it was given back beside a thread, and after that has ended."""
    calls = _counted()
    names = InteractiveShell.instance().user_ns
    names["end"] = threading.Event()
    _cells(RELEASE, SOON, UP_AND_DOWN + "; import threading; t = threading.Timer(0, end.wait); t.start()")
    until(lambda: not _timers())
    beside = len(calls)
    _cells("end.set(); t.join(); t = threading.Timer(1000, print); t.daemon = True; t.start()")
    return beside, until(lambda: len(calls) - beside)


def _begin_meanwhile() -> bool:
    """Return whether a cell began only after what was being given back was done."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def slow() -> dict[str, int]:
        begun.set()
        may_end.wait()
        ended.set()
        return {}

    cells(RELEASE, UP_AND_DOWN)
    mock.patch.object(cuda, "give_back", slow).start()
    mock.patch.object(cell_watches, "PATIENCE", 30 * SLACK).start()
    cells(SOON)
    begun.wait()
    threading.Timer(0.2, may_end.set).start()
    InteractiveShell.instance().user_ns["ended"] = ended
    (seen,) = cells("print(ended.is_set())")
    return seen.text == "True\n"


def _again_and_again() -> list[int]:
    calls = _counted()
    InteractiveShell.instance().user_ns["calls"] = calls
    times = []
    for _ in range(3):
        _cells(RELEASE, SOON, UP_AND_DOWN, "calls.clear()")
        until(lambda: calls)
        until(lambda: not _timers() or len(calls) > 1)  # without a timer none can follow
        times.append(len(calls))
    return times


def _unloaded() -> tuple[bool, bool]:
    """Return whether a timer runs before the extension is unloaded, and after it."""
    _cells(RELEASE, LATER, UP_AND_DOWN)
    timers = _timers()
    InteractiveShell.instance().run_line_magic("unload_ext", "tfgpu_magic")
    for timer in timers:
        timer.join()
    return bool(timers), bool(_timers())
