"""The variables of the real TensorFlow go to host memory and back on a simulated machine, and every bit is as it was.

Kernels compute nothing there. So each variable is filled with random bytes of its own from the host first, and all are
read again after the way back: through the variable, and through a function that captured it.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import tfgpu_magic
from tests.processes import run
from tests.sizes import LITTLE, MIB
from tests.tf.on_machine import held
from tests.waiting import until
from tfgpu_magic.parking import arrays as arrays_module
from tfgpu_magic.parking import host_memory
from tfgpu_magic.parking.arrays import MovedArrays, survey
from tfgpu_magic.parking.frameworks import ParkingError
from tfgpu_magic.parking.frameworks import tensorflow as parked
from tfgpu_magic.parking.kernel.process import GatedProcess
from tfgpu_magic.simgpu import Machine

TYPES = (
    "float32", "float16", "bfloat16", "float64", "bool", "int8", "uint8", "int16", "uint16", "int64", "uint32",
    "uint64", "complex64", "complex128",
)  # fmt: skip
SIZE = 300_000


def handles() -> dict[int, Any]:
    """Return each variable of this process that is on a GPU, by the id of its handle."""
    kinds: Any = sys.modules["tensorflow.python.ops.resource_variable_ops"]
    made = [one for one in gc.get_objects() if issubclass(type(one), kinds.BaseResourceVariable)]
    real = [one for one in made if type(one) is not kinds._UnreadVariable]
    return {id(one.handle): one for one in real if "GPU" in getattr(one.handle, "device", "")}


def fill() -> None:
    """Fill every variable on a GPU with random bytes of its own."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(1)
    for one in handles().values():
        count = int(np.prod(one.shape))
        if one.dtype == tf.bool:
            values: Any = random.integers(0, 2, count).astype(bool)
        else:
            values = np.frombuffer(random.bytes(count * one.dtype.size), one.dtype.as_numpy_dtype)
        with tf.device(one.handle.device):
            tf.raw_ops.AssignVariableOp(resource=one.handle, value=tf.constant(values.reshape(one.shape)))


def content() -> dict[int, bytes]:
    """Return the bytes of every variable on a GPU."""
    return {number: one.read_value().numpy().tobytes() for number, one in handles().items()}


def there_and_back(mechanism: MovedArrays) -> list[list[int]]:
    """Park and come back; return what the driver says that is held before, meanwhile and after."""
    figures = [held()]
    mechanism.move_out()
    figures.append(held())
    mechanism.move_back()
    assert not mechanism.any_moved()
    return [*figures, held()]


def every_type() -> tuple[list[list[int]], bool, int, bool]:
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    with tf.device("GPU:0"):
        variables = [tf.Variable(tf.zeros(SIZE, name), name=name) for name in TYPES]
    read = tf.function(lambda: variables[0].read_value())
    read()
    fill()
    same = tf.Variable(tf.zeros(SIZE))
    same.assign(variables[0])
    before, found = content(), survey()
    [both] = [one for one in found.leaves if len(one.handles) == 2]  # type: ignore[attr-defined]  # a variable's
    moved = len(found.leaves)
    del found, both
    figures = there_and_back(MovedArrays())
    return figures, content() == before, moved, read().numpy().tobytes() == before[id(variables[0].handle)]


def test_every_type_of_variable_comes_back_bit_for_bit_and_what_it_held_is_free_meanwhile() -> None:
    with Machine.create("8GiB") as machine:
        (before, away, after), same, moved, captured = run(machine, every_type)

    assert same
    assert captured
    assert moved == len(TYPES)  # the one that shares a buffer leaves with its owner
    assert away[0] in LITTLE
    assert before[0] - away[0] > SIZE * 30
    assert after[0] <= before[0]  # a buffer that is shared comes back once


def training(gpus: int) -> tuple[int, bool, list[list[int]], list[float]]:
    """Train on GPUs, on one in mixed precision and compiled by XLA, neither of which Keras does on several."""
    import contextlib

    import numpy as np
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    one = gpus == 1
    if one:
        tf.keras.mixed_precision.set_global_policy("mixed_float16")
    names = [f"GPU:{number}" for number in range(gpus)]
    with contextlib.nullcontext() if one else tf.distribute.MirroredStrategy(names).scope():
        layers = [tf.keras.layers.Dense(512, "relu") for _ in range(4)]
        model = tf.keras.Sequential([tf.keras.Input((512,)), *layers, tf.keras.layers.Dense(1, dtype="float32")])
        model.compile("adam", "mse", jit_compile=one)
    x, y = np.zeros((64, 512), "float32"), np.zeros(64, "float32")
    model.fit(x, y, batch_size=32, verbose=0)
    tables = [tf.Variable(tf.zeros(100 + number)) for number in range(200)]
    fill()
    before = content()
    assert len(before) > len(tables)
    mechanism = MovedArrays()
    figures = there_and_back(mechanism)
    same = content() == before
    return len(before), same, figures, model.fit(x, y, batch_size=32, verbose=0).history["loss"]


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_model_comes_back_with_its_optimizer_and_goes_on_training(gpus: int) -> None:
    with Machine.create("2x8GiB") as machine:
        variables, same, (before, away, after), losses = run(machine, training, gpus)

    assert variables > 200 + 25 * gpus  # beside small ones weights and slots, on each GPU
    assert same
    assert len(losses) == 1
    for gpu in range(gpus):
        assert before[gpu] - away[gpu] > 8 * MIB
        assert after[gpu] - away[gpu] > 8 * MIB


def many(count: int = 12) -> list[Any]:
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    made = [tf.Variable(tf.zeros(1000 * (number + 1)), name=f"v{number}") for number in range(count)]
    fill()
    return made


def failing_at_each() -> list[tuple[str, bool, bool]]:
    """Have the copy of each variable fail, and then what follows its copy; return what was said and what is there."""
    kept = many()
    before, found = content(), []
    for step in range(len(kept)):
        for name in ("read", "_empty"):
            calls = iter(range(100))
            real = getattr(parked, name)
            after = len(kept) if name == "read" else 0  # the survey reads each once

            def fails(*args: Any, calls: Any = calls, real: Any = real, last: int = step + after) -> Any:
                if next(calls) == last:
                    raise RuntimeError("it broke")
                return real(*args)

            mechanism = MovedArrays()
            with mock.patch.object(parked, name, fails), pytest.raises(ParkingError) as error:
                mechanism.move_out()
            found.append((str(error.value), mechanism.any_moved(), content() == before))
    return found


def test_where_a_copy_fails_what_had_left_is_back() -> None:
    with Machine.create("8GiB") as machine:
        found = run(machine, failing_at_each)

    assert set(found) == {("it broke Everything is back on the GPU.", False, True)}


def interrupted_at_each() -> list[tuple[str, bool, bool]]:
    """Interrupt the way out before each variable; return what was said, and what is there."""
    kept = many()
    before, found = content(), []
    for number in range(len(kept)):
        moved = iter([True] * number)
        mechanism = MovedArrays()
        with pytest.raises(ParkingError) as error:
            mechanism.move_out(lambda moved=moved: next(moved, False))  # type: ignore[misc]
        found.append((str(error.value), mechanism.any_moved(), content() == before))
    return found


def test_an_interrupt_before_any_variable_takes_back_what_has_left() -> None:
    with Machine.create("8GiB") as machine:
        found = run(machine, interrupted_at_each)

    assert set(found) == {("It was interrupted. Everything is back on the GPU.", False, True)}


def without_host_memory() -> tuple[str, bool, bool, int]:
    kept = many()
    before, asked = content(), []

    def shortage(size: int) -> str:
        asked.append(size)
        return "No room." if len(asked) > 5 else ""

    mechanism = MovedArrays()
    patch = mock.patch.object
    with (
        patch(arrays_module, "_BATCH", 1),
        patch(host_memory, "shortage", shortage),
        pytest.raises(ParkingError) as error,
    ):
        mechanism.move_out()
    assert len(kept) > len(asked)
    return str(error.value), mechanism.any_moved(), content() == before, len(asked)


def on_the_cpu_alone() -> Sequence[str]:
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.zeros(1)
    return survey().reasons


def test_where_tensorflow_uses_the_cpu_alone_nothing_is_advised() -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, on_the_cpu_alone) == ["Neither TensorFlow nor PyTorch has anything on a GPU here."]


def test_room_in_host_memory_is_asked_before_each_variable() -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, without_host_memory) == ("No room. Everything is back on the GPU.", False, True, 6)


def estimates() -> tuple[float | None, Sequence[str], list[str], bool]:
    """Return the seconds foreseen, what a check says without host memory, what is shown on the way, and if all came."""
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    kept = [tf.Variable(tf.zeros(size * MIB)) for size in (1, 4, 8, 8)]
    fill()
    before, shown, mechanism = content(), list[str](), MovedArrays()
    with mock.patch.object(host_memory, "shortage", lambda size: f"No room for {size // MIB} MiB."):
        refusals = arrays_module.check().refusals
    seconds = arrays_module.check().seconds
    mechanism.move_out(show=shown.append)
    mechanism.move_back()
    assert kept
    return seconds, refusals, shown, content() == before


def test_how_long_it_will_take_is_measured_and_how_far_it_is_is_shown() -> None:
    with Machine.create("8GiB") as machine:
        seconds, refusals, shown, same = run(machine, estimates)

    assert seconds
    assert refusals == ["No room for 84 MiB."]
    assert [re.sub(r"(less than 1|about \d+) s", "N s", line) for line in shown] == [
        "Moving 84 MiB to host memory.",
        "16 MiB of 84 MiB are in host memory; N s more.",
        "80 MiB of 84 MiB are in host memory; N s more.",
        "84 MiB of 84 MiB are in host memory; N s more.",
    ]
    assert same


def a_full_gpu() -> tuple[list[str], bool, bool]:
    """Have another process fill the GPU while all is away, until it was tried twice to come back."""
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    kept = [tf.Variable(tf.zeros(16 * MIB)) for _ in range(4)]
    fill()
    before = content()
    mechanism = MovedArrays()
    mechanism.move_out()
    machine = Machine.current()
    assert machine is not None
    shown: list[str] = []
    neighbour = machine.add_neighbour("7.6GiB@0")
    with mock.patch.object(arrays_module, "_TRY_EVERY", 0.0):
        mechanism.move_back(lambda: len(shown) < 3, shown.append)
    still = mechanism.any_moved()
    neighbour.stop()
    mechanism.move_back()
    assert kept
    return shown, still, content() == before


def test_without_room_on_the_gpu_it_is_tried_again_until_there_is_some() -> None:
    with Machine.create("8GiB") as machine:
        shown, still, same = run(machine, a_full_gpu)

    assert len(shown) == 3
    assert "GPU 0 does not have 256 MiB free yet. Trying again every second." in shown[-1]
    assert still
    assert same


def iterators() -> dict[str, Any]:
    import tensorflow as tf

    variables = many(3)
    found: dict[str, Any] = {}

    def judged(name: str) -> None:
        there = survey()
        found[name] = len(there.leaves), [(one.name, one.why) for one in there.stays], list(there.refusals)

    tensor = variables[2].value()
    judged("tensor")
    del tensor
    data = iter(tf.data.Dataset.range(4).map(lambda number: tf.cast(number, tf.float32) + variables[1][0]))
    judged("iterator")
    del data
    judged("deleted")
    data = iter(tf.data.Dataset.range(4).map(lambda number: tf.py_function(float, [number], tf.float32)))
    judged("python")
    del data
    judged("gone")
    with tf.device("GPU:0"):
        switch = tf.Variable(tf.zeros(SIZE, tf.bool), name="switch")  # of a type that tells no address
    data = iter(tf.data.Dataset.range(4).map(lambda number: switch[number]))
    judged("of another type")
    data = iter(tf.data.Dataset.from_generator(lambda: iter([1]), output_types=tf.int32))
    judged("generator")
    data = iter(tf.data.Dataset.range(4).interleave(
        lambda _: tf.data.Dataset.range(2).map(lambda more: tf.numpy_function(int, [more], tf.int64))
    ))  # fmt: skip
    judged("nested")
    del data
    return found


def test_what_else_reads_a_variable_keeps_it_and_is_named() -> None:
    with Machine.create("8GiB") as machine:
        found = run(machine, iterators)

    leaves, stays, _ = found["tensor"]
    assert leaves == 2
    assert ("v2:0", "an eager tensor shares this memory") in stays
    leaves, stays, _ = found["iterator"]
    assert leaves == 2
    assert ("v1:0", "a tf.data iterator reads this variable") in stays
    assert found["deleted"] == found["gone"] == (3, [], [])
    leaves, stays, _ = found["of another type"]
    assert leaves == 3
    assert ("switch:0", "a tf.data iterator reads this variable") in stays
    for name in ("python", "generator", "nested"):
        assert found[name] == (0, [], [parked.CALLS_PYTHON])


TO_GPU = {
    "plain": "iter(data)",
    "prefetched to the host": "iter(data.prefetch(2))",
    "prefetched to the GPU": "iter(data.apply(tf.data.experimental.prefetch_to_device('/GPU:0')))",
    "in the middle": "iter(data.apply(tf.data.experimental.copy_to_device('/GPU:0')).map(lambda x: x).prefetch(2))",
    "of a strategy": "iter(tf.distribute.OneDeviceStrategy('/GPU:0').experimental_distribute_dataset(data))",
}


def pipelines() -> dict[str, list[bool]]:
    """Return of each iterator whether it is found, and what is said once it is gone."""
    import tensorflow as tf

    names = {"tf": tf, "data": tf.data.Dataset.range(16).batch(2)}
    found: dict[str, list[bool]] = {}
    for name, code in TO_GPU.items():
        alive = eval(code, names)
        next(alive)
        found[name] = [parked.PREFETCHES in survey().refusals]
        del alive
        found[name].append(parked.PREFETCHES in survey().refusals)
    return found


def test_pipelines_to_a_gpu_are_seen() -> None:
    with Machine.create("1x8GiB") as machine:
        found = run(machine, pipelines)

    to_gpu = ("prefetched to the GPU", "in the middle", "of a strategy")
    assert found == {name: [name in to_gpu, False] for name in TO_GPU}


def garbage() -> tuple[list[str], list[int], list[str]]:
    """Return what stays where nothing but garbage would, and of which generations garbage was collected before."""
    import tensorflow as tf

    kept, collected = many(), list[int]()
    gc.collect()
    gc.disable()  # or it were soon gone
    gc.callbacks.append(lambda phase, info: collected.append(info["generation"]) if phase == "start" else None)
    none = [one.name for one in survey().stays]
    first = [*collected]
    cycle: list[Any] = [tf.zeros([1024, 1024])]
    cycle.append(cycle)
    del cycle
    assert kept
    return none, first, [one.name for one in survey().stays]


def test_garbage_is_not_named_and_is_only_looked_for_where_something_stays() -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, garbage) == ([], [], [])


def under_another_policy() -> tuple[str, bool]:
    import tensorflow as tf

    tfgpu_magic.apply("growth")
    kept = tf.Variable(tf.zeros(MIB))
    mechanism = MovedArrays()
    with pytest.raises(ParkingError) as error:
        mechanism.move_out()
    assert kept is not None
    return str(error.value), mechanism.any_moved()


def test_under_a_policy_that_gives_nothing_back_it_is_refused_with_the_line_to_write() -> None:
    with Machine.create("8GiB") as machine:
        text, away = run(machine, under_another_policy)

    assert "`%tf_gpu growth --release --restart`" in text
    assert "4 MiB" in text
    assert not away


def fifty_times() -> tuple[list[int], list[int], bool]:
    import psutil
    import tensorflow as tf
    from IPython.core.interactiveshell import InteractiveShell

    kept = [*many(), tf.Variable(tf.zeros(4 * MIB))]
    fill()
    before = content()
    this, process = psutil.Process(), GatedProcess(InteractiveShell.instance(), MovedArrays())
    threads, files, sizes = 0, [], []
    for number in range(50):
        against = process.park()
        assert not against, against
        process._come()
        if number in (4, 49):
            threads = until(this.num_threads, lambda now: now <= (threads or now))  # noqa: B023  # one may be ending yet
            files.append(len([*Path("/proc/self/fd").iterdir()]))
            sizes.append(this.memory_info().rss)
    assert kept
    return files, sizes, content() == before


def test_fifty_times_there_and_back_keeps_no_thread_no_file_and_no_copy() -> None:
    with Machine.create("8GiB") as machine:
        files, sizes, same = run(machine, fifty_times)

    assert same
    assert files[0] == files[1]
    assert sizes[1] - sizes[0] < 64 * MIB  # a copy that was kept each time would make 720
