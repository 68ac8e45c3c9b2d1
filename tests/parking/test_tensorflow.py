"""The variables of the real TensorFlow go to host memory and back on a simulated machine, and every bit is as it was.

Each is filled with random bytes of its own first, and all are read again after the way back: through the variable, and
through a function that captured it.
"""

from __future__ import annotations

import contextlib
import gc
import re
import weakref
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import tfgpu_magic
from tests.parking.test_host_memory import host_room
from tests.parking.variables import TWELVE, content, digest, failing, fill, variables
from tests.processes import on
from tests.sizes import LITTLE, MIB
from tests.tf.on_machine import held
from tests.waiting import until
from tfgpu_magic.errors import Refused
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.parking import arrays as arrays_module
from tfgpu_magic.parking import host_memory
from tfgpu_magic.parking.arrays import MovedArrays, survey
from tfgpu_magic.parking.frameworks import tensorflow as parked
from tfgpu_magic.parking.kernel.process import GatedProcess

TYPES = (
    "float32", "float16", "bfloat16", "float64", "bool", "int8", "uint8", "int16", "uint16", "int64", "uint32",
    "uint64", "complex64", "complex128",
)  # fmt: skip
SIZE = 300_000


def there_and_back() -> list[list[int]]:
    """Park and come back; return what the driver says that is held before, meanwhile and after."""
    moved, figures = MovedArrays(), [held()]
    moved.move_out()
    figures.append(held())
    moved.move_back()
    assert not moved.any_moved()
    return [*figures, held()]


@on("8GiB")
def test_every_type_of_variable_comes_back_bit_for_bit_and_what_it_held_is_free_meanwhile() -> None:
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    with tf.device("GPU:0"):
        made = [tf.Variable(tf.zeros(SIZE, name), name=name) for name in TYPES]
    read = tf.function(lambda: made[0].read_value())
    read()
    fill()
    same = tf.Variable(tf.zeros(SIZE))
    same.assign(made[0])
    before = content()
    shared = [len(one.handles) for one in survey().leaves]  # type: ignore[attr-defined]  # a variable's
    [first], [away], [after] = there_and_back()

    assert content() == before
    assert digest(read()) == before[id(made[0].handle)]
    assert sorted(shared) == [1] * (len(TYPES) - 1) + [2]  # the one that shares a buffer leaves with its owner
    assert away in LITTLE
    assert first - away > SIZE * 30
    assert after <= first  # a buffer that is shared comes back once


@pytest.mark.parametrize(("gpus", "part"), [(1, 0.0), (2, 0.0), pytest.param(2, 0.6, marks=pytest.mark.nightly)])
@on("2x128GiB")
def test_a_model_comes_back_with_its_optimizer_and_goes_on_training(gpus: int, part: float) -> None:
    """Beside the model there is as much as is a part of the room in host memory when it is parked."""
    import numpy as np
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    one = gpus == 1
    if one:  # in mixed precision and compiled by XLA, neither of which Keras does on several
        tf.keras.mixed_precision.set_global_policy("mixed_float16")
    names = [f"GPU:{number}" for number in range(gpus)]
    with contextlib.nullcontext() if one else tf.distribute.MirroredStrategy(names).scope():
        layers = [tf.keras.layers.Dense(512, "relu") for _ in range(4)]
        model = tf.keras.Sequential([tf.keras.Input((512,)), *layers, tf.keras.layers.Dense(1, dtype="float32")])
        model.compile("adam", "mse", jit_compile=one)
    x, y = np.zeros((64, 512), "float32"), np.zeros(64, "float32")
    model.fit(x, y, batch_size=32, verbose=0)
    tables = [tf.Variable(tf.zeros(100 + number)) for number in range(200)]
    read = tf.function(lambda: tables[9].read_value())
    read()
    fill()
    while part and survey().leaving < part * host_room():
        with tf.device(names[len(tables) % gpus]):
            tables.append(tf.Variable(tf.zeros(64 * MIB)))
        fill(tables[-1])
    before = content()
    first, away, after = there_and_back()

    assert content() == before
    assert digest(read()) == before[id(tables[9].handle)]
    assert len(before) > len(tables) + 25 * gpus  # weights and slots, on each GPU
    for gpu in range(gpus):
        assert away[gpu] in LITTLE
        assert first[gpu] - away[gpu] > 8 * MIB
        assert after[gpu] - away[gpu] > 8 * MIB
    assert len(model.fit(x, y, batch_size=32, verbose=0).history["loss"]) == 1


def refused(*steps: bool) -> str:
    """Try to park, of which each step is wanted or not, and return why everything is back on the GPU."""
    moved, wanted = MovedArrays(), iter(steps)
    with pytest.raises(Refused, match=r"Everything is back on the GPU\.") as error:
        moved.move_out(lambda: next(wanted, not steps))
    assert not moved.any_moved()
    return str(error.value).partition(" Everything")[0]


@pytest.mark.parametrize("name", ["read", "_empty"])
@on("8GiB")
def test_where_a_copy_or_what_follows_it_fails_what_had_left_is_back(name: str) -> None:
    kept = variables(*TWELVE)
    before, real = content(), getattr(parked, name)
    for step in range(len(kept)):
        last = step + (len(kept) if name == "read" else 0)  # the survey reads each once
        with mock.patch.object(parked, name, failing(real, last, "it broke")):
            assert refused() == "it broke"
        assert content() == before


@on("8GiB")
def test_an_interrupt_before_any_variable_takes_back_what_has_left() -> None:
    kept = variables(*TWELVE)
    before = content()
    for number in range(len(kept)):
        assert refused(*[True] * number, False) == "It was interrupted."
        assert content() == before


@on("8GiB")
def test_room_in_host_memory_is_asked_before_each_variable() -> None:
    kept = variables(*TWELVE)
    before, room = content(), mock.Mock(side_effect=[None] * 5 + [msg("No room.")])
    with mock.patch.object(arrays_module, "_BATCH", 1), mock.patch.object(host_memory, "shortage", room):
        assert refused() == "No room."

    assert content() == before
    assert room.call_count == 6 < len(kept)


@on("8GiB")
def test_where_tensorflow_uses_the_cpu_alone_nothing_is_advised() -> None:
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.zeros(1)

    assert list(map(str, survey().reasons)) == ["Neither TensorFlow nor PyTorch has anything on a GPU here."]


@on("8GiB")
def test_how_long_it_will_take_is_measured_and_how_far_it_is_is_shown() -> None:
    kept = variables(*(size * MIB for size in (1, 4, 8, 8)))
    before, shown, moved = content(), list[Message](), MovedArrays()
    with mock.patch.object(host_memory, "shortage", lambda size: msg("No room for {size}.", size=rounded(size))):
        assert list(map(str, arrays_module.check().refusals)) == ["No room for 84 MiB."]
    assert arrays_module.check().seconds
    moved.move_out(show=shown.append)
    moved.move_back()

    assert [re.sub(r"(less than 1|about \d+) s", "N s", str(line)) for line in shown] == [
        "Moving 84 MiB to host memory.",
        "16 MiB of 84 MiB are in host memory; N s more.",
        "80 MiB of 84 MiB are in host memory; N s more.",
        "84 MiB of 84 MiB are in host memory; N s more.",
    ]
    assert len(kept) == 4
    assert content() == before


@on("8GiB")
def test_what_else_reads_a_variable_keeps_it_and_is_named() -> None:
    import tensorflow as tf

    made = variables(1000, 2000, 3000)
    made.append(tf.Variable(tf.zeros(SIZE, tf.bool), name="v3"))  # of a type that tells no address

    def judged() -> tuple[int, list[tuple[str, str]]]:
        found = survey()
        assert not found.refusals
        return len(found.leaves), [(one.name, str(one.why)) for one in found.stays if one.name.startswith("v")]

    tensor = made[2].value()
    assert judged() == (3, [("v2:0", "an eager tensor shares this memory")])
    del tensor
    for number in (1, 3):
        data = iter(tf.data.Dataset.range(4).map(lambda one, table=made[number]: tf.cast(one, table.dtype) == table[0]))
        assert judged() == (3, [(f"v{number}:0", "a tf.data iterator reads this variable")])
        del data
    assert judged() == (4, [])


CALLS_PYTHON = {
    "py_function": "data.map(lambda number: tf.py_function(float, [number], tf.float32))",
    "generator": "tf.data.Dataset.from_generator(lambda: iter([1]), output_types=tf.int32)",
    "nested": "data.interleave(lambda _: data.map(lambda more: tf.numpy_function(int, [more], tf.int64)))",
}
TO_GPU = {
    "prefetched": "data.apply(tf.data.experimental.prefetch_to_device('/GPU:0'))",
    "in the middle": "data.apply(tf.data.experimental.copy_to_device('/GPU:0')).map(lambda x: x).prefetch(2)",
    "of a strategy": "tf.distribute.OneDeviceStrategy('/GPU:0').experimental_distribute_dataset(data)",
}
ITERATORS = {
    **dict.fromkeys(["data", "data.prefetch(2)"], ""),
    **dict.fromkeys(CALLS_PYTHON.values(), parked.CALLS_PYTHON),
    **dict.fromkeys(TO_GPU.values(), parked.PREFETCHES),
}


@on("8GiB")
def test_an_iterator_that_calls_python_or_prefetches_to_a_gpu_is_seen_until_it_is_gone() -> None:
    import tensorflow as tf

    kept, data = variables(1000), tf.data.Dataset.range(16)
    assert kept
    for code, why in ITERATORS.items():
        alive = iter(eval(code, {"tf": tf, "data": data}))
        if not why or why == parked.PREFETCHES:
            next(alive)
        assert survey().refusals == [why] * bool(why), code
        del alive
        assert survey().refusals == [], code


@on("8GiB")
def test_what_is_deleted_after_a_search_is_gone_at_once() -> None:
    """Its list of all objects would keep it until Python collects garbage, which it does not while a state is away."""
    kept, thing = variables(1000), lambda: None
    gc.disable()
    assert len(survey().leaves) == len(kept)
    dies = weakref.ref(thing)
    del thing

    assert dies() is None


@on("8GiB")
def test_garbage_is_not_named_and_is_only_looked_for_where_something_stays() -> None:
    import tensorflow as tf

    kept, collected = variables(*TWELVE), list[int]()
    gc.collect()
    gc.disable()  # or it were soon gone
    gc.callbacks.append(lambda phase, info: collected.append(info["generation"]) if phase == "start" else None)
    assert survey().stays == []
    assert collected == []
    cycle: list[Any] = [tf.zeros([1024, 1024])]
    cycle.append(cycle)
    del cycle

    assert survey().stays == []
    assert kept


@on("8GiB")
def test_under_a_policy_that_gives_nothing_back_it_is_refused_with_the_line_to_write() -> None:
    import tensorflow as tf

    tfgpu_magic.apply("growth")
    kept = tf.Variable(tf.zeros(MIB))
    moved = MovedArrays()
    with pytest.raises(Refused, match=r"4 MiB .*`%tf_gpu growth --release --restart`"):
        moved.move_out()

    assert kept is not None
    assert not moved.any_moved()


@on("8GiB")
def test_once_all_is_back_its_copies_are_no_memory_of_the_process_any_more() -> None:
    """The C library keeps what was freed, if it is less than 32 MiB each."""
    import psutil
    from IPython.core.interactiveshell import InteractiveShell

    kept = variables(*[2 * MIB] * 40)
    this, process = psutil.Process(), GatedProcess(InteractiveShell.instance(), MovedArrays())
    before = this.memory_info().rss
    for _ in range(2):
        assert not process.park()
        process._come()
        until(lambda: this.memory_info().rss < before + 64 * MIB)

    assert len(kept) == 40


@on("8GiB")
def test_fifty_times_there_and_back_keeps_no_thread_no_file_and_no_copy() -> None:
    import psutil
    from IPython.core.interactiveshell import InteractiveShell

    kept = variables(*TWELVE, 4 * MIB)
    before = content()
    this, process = psutil.Process(), GatedProcess(InteractiveShell.instance(), MovedArrays())
    threads, files, sizes = 0, list[int](), list[int]()
    for number in range(50):
        against = process.park()
        assert not against, against
        process._come()
        if number in (4, 49):
            threads = until(this.num_threads, lambda now: now <= (threads or now))  # noqa: B023  # one may be ending yet
            files.append(len([*Path("/proc/self/fd").iterdir()]))
            sizes.append(this.memory_info().rss)

    assert kept
    assert content() == before
    assert files[0] == files[1]
    assert sizes[1] - sizes[0] < 64 * MIB  # a copy that was kept each time would make 720
