"""Programs for the real TensorFlow whose peaks are known.

Each is called with a function that gives a `with` block for a name. Memory is taken of two logical GPUs of 4 GiB.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tests.sizes import MIB
from tfgpu_magic.simgpu import Machine

Marked = Callable[[str], AbstractContextManager[object]]
PATIENCE = 240.0

unit = MIB
"""Bytes for each MiB of a program: fewer in a rehearsal."""


def take(mib: int, gpu: int = 0) -> Any:
    """Return a tensor of so many MiB."""
    import tensorflow as tf

    with tf.device(f"GPU:{gpu}"):
        return tf.zeros(mib * unit // 4, tf.float32)


def freed(marked: Marked) -> None:
    with marked("freed"):
        take(300)


def one_beside_the_other(marked: Marked) -> None:
    with marked("beside"):
        first = take(300)
        del first
        second, third = take(200), take(250)
        del second, third


def given_back(marked: Marked) -> None:
    tensor = take(500)
    with marked("given back"):
        del tensor
        take(100)


def nothing(marked: Marked) -> None:
    tensor = take(200)
    with marked("nothing"):
        pass
    del tensor


def nested_thrice(marked: Marked) -> None:
    with marked("first"):
        take(500)
        base = take(50)
        with marked("second"):
            take(300)
            with marked("third"):
                take(120)
            take(200)
        del base


def an_error(marked: Marked) -> None:
    with contextlib.suppress(ZeroDivisionError), marked("failed"):
        take(256)
        1 / 0  # noqa: B018


def out_of_memory(marked: Marked) -> None:
    import tensorflow as tf

    with contextlib.suppress(tf.errors.ResourceExhaustedError), marked("out of memory"):
        held = [take(1024)]
        held.append(take(8192))


def a_function(marked: Marked) -> None:
    import tensorflow as tf

    @tf.function  # type: ignore[untyped-decorator]
    def step(x: Any) -> Any:
        return tf.reduce_sum(tf.concat([x, x * 2.0, x + 1.0], 0))

    x = take(64)
    with marked("traced and run"):
        step(x)
    with marked("run"):
        step(x)


def a_variable(marked: Marked) -> None:
    import tensorflow as tf

    with marked("variable"), tf.device("GPU:0"):
        variable = tf.Variable(take(64))
        variable.assign(variable * 2.0)
        del variable


def a_gradient(marked: Marked) -> None:
    import tensorflow as tf

    x = take(64)
    with marked("gradient"), tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(x * x * x)
        tape.gradient(y, x)
    del x, y


def another_thread(marked: Marked) -> None:
    with marked("both"):
        thread = threading.Thread(target=take, args=(448,))
        thread.start()
        thread.join(PATIENCE)


def two_threads_that_measure(marked: Marked) -> None:
    """Have one begin before the other and end before it."""
    steps = [threading.Event() for _ in range(3)]

    def first() -> None:
        with marked("first"):
            take(250)
            steps[0].set()
            steps[1].wait(PATIENCE)
            take(150)
        steps[2].set()

    def second() -> None:
        steps[0].wait(PATIENCE)
        with marked("second"):
            take(350)
            steps[1].set()
            steps[2].wait(PATIENCE)
            take(50)

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)


def another_logical_gpu(marked: Marked) -> None:
    with marked("the second"):
        take(320, gpu=1)


def a_neighbour_that_allocates(marked: Marked) -> None:
    machine = Machine.current()
    assert machine is not None
    with marked("beside it"):
        first = take(64)
        neighbour = machine.add_neighbour("2GiB@0")
        second = take(96)
        neighbour.stop()
        del first, second


def both_logical_gpus(marked: Marked) -> None:
    with marked("outer"):
        first = take(128, gpu=0)
        with marked("inner"):
            take(512, gpu=1)
        del first


PROGRAMS: dict[Callable[[Marked], None], dict[str, tuple[int, int]]] = {
    freed: {"freed": (300, 0)},
    one_beside_the_other: {"beside": (450, 0)},
    given_back: {"given back": (500, 0)},
    nothing: {"nothing": (200, 0)},
    nested_thrice: {"first": (500, 0), "second": (350, 0), "third": (170, 0)},
    an_error: {"failed": (256, 0)},
    out_of_memory: {"out of memory": (1024, 0)},
    a_variable: {"variable": (128, 0)},
    a_gradient: {"gradient": (320, 0)},
    another_thread: {"both": (448, 0)},
    two_threads_that_measure: {"first": (350, 0), "second": (350, 0)},
    another_logical_gpu: {"the second": (0, 320)},
    a_neighbour_that_allocates: {"beside it": (160, 0)},
    both_logical_gpus: {"outer": (128, 512), "inner": (128, 512)},
    a_function: {"traced and run": (384, 0), "run": (384, 0)},
}
"""The peaks of each program's blocks in MiB, by arithmetic, of each logical GPU.

The last one leaves constants of its function in the middle of the pool.
"""
