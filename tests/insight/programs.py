"""Programs for the real TensorFlow whose peaks are measured, and found in runs of their own by its own functions.

Each is called with a function that gives a `with` block for a name. Memory is taken of two logical GPUs of 4 GiB.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tfgpu_magic
from tests.sizes import MIB
from tests.tf.on_machine import touch_every_gpu
from tfgpu_magic.insight.measuring import Measuring

Marked = Callable[[str], AbstractContextManager[object]]
Peaks = dict[str, dict[str, int]]
"""The peak of each logical GPU, by the name of the block."""

PATIENCE = 30.0
GPUS = ("GPU:0", "GPU:1")


def take(mib: int, gpu: int = 0) -> Any:
    """Return a tensor of so many MiB."""
    import tensorflow as tf

    with tf.device(f"GPU:{gpu}"):
        return tf.zeros(mib * MIB // 4, tf.float32)


def kept(marked: Marked) -> None:
    with marked("kept"):
        tensor = take(100)
    del tensor


def freed(marked: Marked) -> None:
    with marked("freed"):
        take(300)


def one_after_the_other(marked: Marked) -> None:
    with marked("one after the other"):
        take(300)
        take(200)


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


def nested_and_higher_within(marked: Marked) -> None:
    with marked("outer"):
        take(100)
        with marked("inner"):
            take(400)
        take(200)


def nested_and_higher_before(marked: Marked) -> None:
    with marked("outer"):
        take(700)
        with marked("inner"):
            take(150)
        take(100)


def nested_and_higher_after(marked: Marked) -> None:
    with marked("outer"):
        with marked("inner"):
            take(150)
        take(600)


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


def twice_in_a_block(marked: Marked) -> None:
    with marked("outer"):
        for name, mib in (("small", 50), ("large", 350)):
            with marked(name):
                take(mib)


def an_error(marked: Marked) -> None:
    with contextlib.suppress(ZeroDivisionError), marked("failed"):
        take(256)
        1 / 0  # noqa: B018


def an_error_within(marked: Marked) -> None:
    with marked("outer"):
        take(96)
        with contextlib.suppress(ZeroDivisionError), marked("failed"):
            take(384)
            1 / 0  # noqa: B018
        take(128)


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
        variable = tf.Variable(tf.zeros(64 * MIB // 4))
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


def both_logical_gpus(marked: Marked) -> None:
    with marked("outer"):
        first = take(128, gpu=0)
        with marked("inner"):
            take(512, gpu=1)
        del first


PROGRAMS = (
    *(kept, freed, one_after_the_other, one_beside_the_other, given_back, nothing),
    *(nested_and_higher_within, nested_and_higher_before, nested_and_higher_after, nested_thrice, twice_in_a_block),
    *(an_error, an_error_within, out_of_memory, a_function, a_variable, a_gradient),
    *(another_thread, two_threads_that_measure, another_logical_gpu, both_logical_gpus),
)


def compared() -> dict[str, tuple[Peaks, Peaks]]:
    """Return the peaks of each program's blocks as they are measured, and as TensorFlow's own functions have them."""
    tfgpu_magic.apply("split 4GiB 4GiB")
    touch_every_gpu()
    return {program.__name__: _compared(program) for program in PROGRAMS}


def _compared(program: Callable[[Marked], None]) -> tuple[Peaks, Peaks]:
    names: list[str] = []

    def named(name: str) -> AbstractContextManager[object]:
        names.append(name)
        return contextlib.nullcontext()

    program(named)  # also what is kept after a first run is there by now
    truth: Peaks = {}
    for name in names:
        program(_alone(name, truth))
    measurings: dict[str, Measuring] = {}

    def measured(name: str) -> Measuring:
        measurings[name] = tfgpu_magic.measure(driver=False)
        return measurings[name]

    program(measured)
    return {name: {one.name: one.peak for one in it.result.pools} for name, it in measurings.items()}, truth


def _alone(only: str, truth: Peaks) -> Marked:
    """Return what looks at the block of one name, with TensorFlow's own functions, and leaves the others alone."""
    import tensorflow as tf

    tell = tf.config.experimental

    @contextlib.contextmanager
    def block(name: str) -> Any:
        for gpu in GPUS if name == only else ():
            tell.reset_memory_stats(gpu)
        try:
            yield
        finally:
            if name == only:
                truth[name] = {gpu: tell.get_memory_info(gpu)["peak"] for gpu in GPUS}

    return block
