"""Calls that use TensorFlow on a simulated machine: their memory comes back however they end, and each is its own."""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
from typing import Any

import psutil

from tests.isolate.rig import call, interrupt_to_the_end, prepare, run
from tests.processes import run as run_on
from tfgpu_magic.errors import Refused, TimedOut, WorkerDied
from tfgpu_magic.isolate import watch
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER
from tfgpu_magic.simgpu import Machine


def held() -> int:
    """Return what the driver accounts to all processes, in bytes."""
    machine = Machine.current()
    assert machine is not None
    return machine.held()


def take() -> int:
    import tensorflow as tf

    tf.zeros(1000)
    return held()


def take_and(end: str) -> None:
    take()
    if end == "crash":
        ctypes.string_at(0)
    elif end == "leave":
        os._exit(3)
    else:
        step()


def step() -> None:
    """Make steps in C++, one after the other; on the CPU, because what a simulated GPU computes is zeros."""
    import tensorflow as tf

    def loop() -> Any:
        with tf.device("CPU"):
            return tf.while_loop(lambda n: n < 10**12, lambda n: n + 1, [tf.constant(0, tf.int64)])

    tf.function(loop)()


def draw() -> tuple[float, ...]:
    import keras
    import numpy as np
    import tensorflow as tf

    return (
        float(tf.random.uniform(())),
        float(keras.random.uniform(())),
        float(keras.layers.Dense(1).add_weight(shape=()).numpy()),
        float(np.random.random()),
        random.random(),
    )


def refused_to_a_call() -> str:
    """Return why a call gets no room beside what its program holds itself."""
    take()
    try:
        return str(run(take, (), {}, policy="limit 4GiB"))
    except Refused as error:
        return str(error)


def test_a_refusal_to_a_call_calls_its_program_this_one() -> None:
    with Machine.create("1x8GiB") as machine:
        assert "GiB  this program\n" in run_on(machine, refused_to_a_call)


def every_end() -> list[tuple[str, bool, int]]:
    """Return how calls that took the GPU end, whether they had it, and what is held afterwards."""
    watch.GRACE = watch.PATIENCE = 0.5  # a loop in C++ heeds no interrupt
    ends: list[tuple[str, bool, int]] = [("", run(take, (), {}) > 2**30, held())]
    for end in ("crash", "leave"):
        try:
            run(take_and, (end,), {})
        except WorkerDied as error:
            ends.append((str(error).splitlines()[0].rpartition(": ")[2], True, held()))
    try:
        run(take_and, ("loop",), {}, timeout=2)
    except TimedOut:
        ends.append(("timeout", True, held()))
    one, _ = call(take_and, "loop")
    threading.Timer(2, interrupt_to_the_end, [one]).start()
    try:
        one.run_process(prepare()).value()
    except KeyboardInterrupt:
        ends.append(("interrupt", True, held()))
    return ends


def test_memory_comes_back_however_a_call_ends(machine: Machine) -> None:
    assert run_on(machine, every_end) == [
        ("", True, 0),
        ("SIGSEGV, segmentation fault.", True, 0),
        ("exit status 3.", True, 0),
        ("timeout", True, 0),
        ("interrupt", True, 0),
    ]


def two_draws() -> tuple[tuple[float, ...], tuple[float, ...], int]:
    return run(draw, (), {}), run(draw, (), {}), psutil.Process(FORK_SERVER.process().pid).num_threads()


def test_two_calls_draw_different_numbers(machine: Machine) -> None:
    one, other, threads = run_on(machine, two_draws, env={"CUDA_VISIBLE_DEVICES": "-1"})

    assert all(a != b for a, b in zip(one, other, strict=True))
    assert threads == 1


def imports() -> bool:
    return "tensorflow" in sys.modules


def warm_with_warnings_as_errors() -> bool:
    run(imports, (), {})
    return bool(run(imports, (), {}))


def test_warnings_that_are_errors_do_not_keep_a_fork_server_cold(machine: Machine) -> None:
    assert run_on(machine, warm_with_warnings_as_errors, env={"PYTHONWARNINGS": "error"})
