"""Programs for the real TensorFlow, of every shape that a measured block may have.

Each is called with a function that gives a `with` block for a name. Memory is taken of two logical GPUs of 4 GiB.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tests.sizes import MIB
from tests.tf.on_machine import here

Marked = Callable[[str], AbstractContextManager[object]]
PATIENCE = 240.0


def take(mib: int, gpu: int = 0) -> Any:
    """Return a tensor of so many MiB."""
    import tensorflow as tf

    with tf.device(f"GPU:{gpu}"):
        return tf.zeros(mib * MIB // 4)


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


def a_neighbour_that_allocates(marked: Marked) -> None:
    with marked("beside it"):
        first = take(64)
        neighbour = here().add_neighbour("2GiB@0")
        second = take(96)
        neighbour.stop()
        del first, second


def both_logical_gpus(marked: Marked) -> None:
    with marked("outer"):
        first = take(128, gpu=0)
        with marked("inner"):
            take(512, gpu=1)
        del first


PROGRAMS = (
    one_beside_the_other,
    given_back,
    nested_thrice,
    an_error,
    out_of_memory,
    a_function,
    two_threads_that_measure,
    a_neighbour_that_allocates,
    both_logical_gpus,
)
