"""What a resident process does with executors on the simulated machine, and returns for a test to judge."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tfgpu_magic
from tests.isolate.on_machine import Seen, begin, begun, fails, hold, sees
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic import IsolatedExecutor
from tfgpu_magic.config.runtime import current_stage
from tfgpu_magic.simgpu import Machine


def at_once(count: int | None, options: dict[str, Any], settings: str = "") -> list[Seen]:
    """Have one executor make calls that hold their GPUs at the same time; by default as many as it runs at once."""
    if settings:
        tfgpu_magic.apply(settings)
    try:
        with tempfile.TemporaryDirectory() as folder, IsolatedExecutor(**options) as executor:
            calls = count or executor._backend.most or 0
            return list(executor.map(hold, [folder] * calls, [calls] * calls))
    finally:
        if settings:
            tfgpu_magic.apply("default")


def one_after_the_other_holds(calls: int, options: dict[str, Any]) -> list[Seen]:
    """Make calls that run at the same time, each of which begins when those before it hold their memory."""
    futures: list[Future[Seen]] = []
    with tempfile.TemporaryDirectory() as folder, IsolatedExecutor(calls, **options) as executor:
        for number in range(1, calls + 1):
            futures.append(executor.submit(hold, folder, calls))
            end = time.monotonic() + 30.0 * SLACK
            while len(list(Path(folder).glob("hold-*"))) < number:
                if time.monotonic() > end:
                    executor.kill_workers()
                    raise TimeoutError(f"call {number} does not begin")
                time.sleep(0.01)
        return [future.result() for future in futures]


def calls_within_a_call(options: dict[str, Any], policy: str) -> list[Seen]:
    """Return what two calls see at the same time that a call makes in its turn."""
    with IsolatedExecutor(1, **options) as executor:
        return executor.submit(_two, policy).result()


def _two(policy: str) -> list[Seen]:
    return at_once(2, {"max_workers": 2, "policy": policy})


def one_after_the_other(executors: int, calls: int, options: dict[str, Any]) -> list[Seen]:
    """Make calls of several executors, each of which would run all of its calls at once."""
    pools = [IsolatedExecutor(calls, **options) for _ in range(executors)]
    seen = [pool.submit(hold, seconds=0.1) for _ in range(calls) for pool in pools]
    return [future.result() for future in seen]


def crowd(calls: int, options: dict[str, Any]) -> int:
    """Make calls at once for GPUs that few of them fit on; return how often the GPUs are looked at for that."""
    machine = Machine.current()
    assert machine is not None
    with machine, IsolatedExecutor(calls, **options) as executor:
        before = machine.calls().get("nvmlInitWithFlags", 0)
        assert len(list(executor.map(abs, range(calls)))) == calls
        return machine.calls()["nvmlInitWithFlags"] - before


def told(function: Callable[[], Any]) -> tuple[str, str]:
    """Return the type and the text of what a function raises."""
    try:
        value = function()
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError(f"it returned {value!r}")


def refused(options: dict[str, Any]) -> tuple[str, str]:
    """Return what an executor is refused with at its construction."""
    return told(lambda: IsolatedExecutor(**options))


def refused_later(options: dict[str, Any], machine: str, neighbour: str) -> tuple[str, str, int]:
    """Return what a call is refused with that finds another program in its way, and what the next call holds."""
    there = Machine.attach(machine)
    executor = IsolatedExecutor(1, **options)
    with there:
        there.add_neighbour(neighbour, name="a neighbour")
        kind, text = told(executor.submit(hold).result)
    return kind, text, sum(executor.submit(hold).result().mine)


def stage() -> str:
    """Return how far TensorFlow has come here."""
    return current_stage().value


def left_behind(calls: int) -> list[tuple[int, int, int]]:
    """Count this process's descriptors, threads and children, before and after so many calls that held a GPU each."""
    with IsolatedExecutor(policy="limit 1GiB") as executor:
        executor.submit(hold).result()
    before = _own()
    for _ in range(calls):
        with IsolatedExecutor(1, policy="limit 1GiB") as executor:
            assert executor.submit(hold).result().mine
    return [before, _own()]


def _own() -> tuple[int, int, int]:
    gc.collect()  # executors that earlier tests have dropped
    own = Path("/proc/self")
    children = [pid for task in own.glob("task/*/children") for pid in task.read_text().split()]
    grandchildren = [
        pid for child in children for pid in Path(f"/proc/{child}/task/{child}/children").read_text().split()
    ]
    return len(list(own.glob("fd/*"))), len(list(own.glob("task/*"))), len([*children, *grandchildren])


def values(function: Callable[..., Any], rows: Sequence[tuple[Any, ...]], options: dict[str, Any]) -> list[Any]:
    """Return what a function returns for each row of arguments, from one executor."""
    with IsolatedExecutor(**options) as executor:
        return [future.result() for future in [executor.submit(function, *row) for row in rows]]


def unpicklable() -> list[tuple[str, str]]:
    """Return what futures raise whose calls cannot be sent: an argument, one by its name, the function, the result."""
    with IsolatedExecutor(1, gpus=0) as executor, ThreadPoolExecutor() as lock_within:
        futures: list[Future[Any]] = [
            executor.submit(repr, lock_within._shutdown_lock),
            executor.submit(values, sees, [], options={"here": [lock_within._shutdown_lock]}),
            executor.submit(lambda: lock_within),
            executor.submit(_a_lock),
        ]
        return [told(future.result) for future in futures]


def _a_lock() -> Any:
    import threading

    return threading.Lock()


def ended(how: str, seconds: float) -> tuple[list[str], float, str, list[int]]:
    """End an executor at work; return how its futures stand, how long that took, and which of its processes live on."""
    with tempfile.TemporaryDirectory() as folder:
        executor = IsolatedExecutor(2, gpus=0)
        futures = [executor.submit(_linger, folder, seconds) for _ in range(4)]
        marks = until(lambda: list(Path(folder).iterdir()), lambda marks: len(marks) >= 2, every=0.01)
        pids = [int(mark.name) for mark in marks]
        began = time.monotonic()
        getattr(executor, how)()
        stand = ["cancelled" if f.cancelled() else type(f.exception()).__name__ for f in futures]
        took = time.monotonic() - began
        late = told(lambda: executor.submit(pow, 2, 3))[1]
        return stand, took, late, [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def _linger(folder: str, seconds: float) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(seconds)


def ended_while_it_waits_for_a_gpu() -> tuple[str, float]:
    """End an executor whose call waits for the GPU that another's call has; return its error and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        first = IsolatedExecutor(1, policy="visible 0")
        second = IsolatedExecutor(1, policy="visible 0")
        has = first.submit(hold, folder, 2)
        until(lambda: any(Path(folder).iterdir()), every=0.01)
        waits = second.submit(hold)
        time.sleep(0.3)
        began = time.monotonic()
        second.kill_workers()
        kind = type(waits.exception()).__name__
        took = time.monotonic() - began
        assert not has.done()
        for what in ("hold", "looked"):
            Path(folder, f"{what}-other").touch()
        has.result()
        return kind, took


def shut_down() -> tuple[list[str], bool]:
    """Shut down with calls queued and one running; return what becomes of them, and whether that one was cancelled."""
    with tempfile.TemporaryDirectory() as folder:
        executor = IsolatedExecutor(1, gpus=0)
        futures: list[Future[Any]] = [
            executor.submit(_linger, folder, 0.5),
            *(executor.submit(pow, 2, 3) for _ in "ab"),
        ]
        until(lambda: any(Path(folder).iterdir()), every=0.01)
        cancelled = futures[0].cancel()
        executor.shutdown(cancel_futures=True)
        return ["cancelled" if future.cancelled() else str(future.result()) for future in futures], cancelled


def without_a_driver(machine: str) -> tuple[int, tuple[int, str | None], str, tuple[str, str]]:
    """Return, where no GPU is: how many calls run at once, what one sees, one with a limit, one that wants a GPU."""
    with Machine.attach(machine) as there:
        there.remove_driver()
        try:
            with IsolatedExecutor() as executor:
                workers, seen = executor._backend.most or 0, executor.submit(sees).result()
            with IsolatedExecutor(1, policy="limit 1GiB") as executor:
                limited = str(executor.submit(sees).result())
            return workers, seen, limited, refused({"gpus": 1})
        finally:
            there.remove_driver(False)


def initialised() -> tuple[list[str], tuple[str, str]]:
    """Return what calls find after an initializer, and what one gets whose initializer fails."""
    with IsolatedExecutor(2, gpus=0, initializer=begin, initargs=("licence",)) as executor:
        found = [future.result() for future in [executor.submit(begun) for _ in range(3)]]
    with IsolatedExecutor(1, gpus=0, initializer=fails) as executor:
        return found, told(executor.submit(begun).result)
