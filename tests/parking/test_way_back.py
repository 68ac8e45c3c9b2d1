"""On its way back each variable of the real TensorFlow is whole on the GPU or safe in host memory, whatever fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import tfgpu_magic
from tests.parking.variables import TWELVE, content, failing, fill, variables
from tests.processes import on
from tests.tf.on_machine import held, here
from tfgpu_magic.engine import room
from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.machine.see import look
from tfgpu_magic.parking import arrays as arrays_module
from tfgpu_magic.parking.arrays import MovedArrays
from tfgpu_magic.parking.frameworks import UNREADABLE
from tfgpu_magic.parking.frameworks import tensorflow as parked


def away() -> MovedArrays:
    """Return what was moved to host memory."""
    moved = MovedArrays()
    moved.move_out()
    return moved


@pytest.mark.parametrize("name", ["_assign", "_wait"])
@on("8GiB")
def test_what_fails_on_the_way_back_is_safe_in_host_memory_and_comes_at_the_next_try(name: str) -> None:
    kept, owner = variables(*TWELVE), parked.Variable if name == "_assign" else parked
    before, real = content(), getattr(owner, name)
    for step in range(len(kept)):
        moved = away()
        with (
            mock.patch.object(owner, name, failing(real, step, "it broke")),
            pytest.raises(RuntimeError, match="it broke"),
        ):
            moved.move_back()
        assert len(moved._moved) == len(kept) - step
        moved.move_back()
        assert content() == before

        moved = away()
        with (
            mock.patch.object(owner, name, failing(real, step, "OOM when allocating tensor")),
            mock.patch.object(room, "TRY_EVERY", 0.0),
        ):
            moved.move_back()  # it tries again
        assert content() == before


@on("8GiB")
def test_who_interrupts_at_any_variable_finds_the_others_in_host_memory() -> None:
    kept = variables(*TWELVE)
    before = content()
    for number in range(len(kept) + 1):
        moved, wanted = away(), iter([True] * (number + 1))  # it is asked before the first, too
        moved.move_back(lambda wanted=wanted: next(wanted, False))  # type: ignore[misc]
        assert len(moved._moved) == len(kept) - number
        moved.move_back()
        assert content() == before


CHANGES: dict[str, tuple[Callable[[Gpu], tuple[Gpu, ...]], str]] = {
    "gone": (lambda _: (), r"GPU {}, to which [\d.]+ [MK]iB must come back, is gone or lost\."),
    "lost": (lambda gpu: (gpu._replace(lost=True),), r"GPU {}, to which .* is gone or lost\."),
    "smaller": (
        lambda gpu: (gpu._replace(total=10_000, reserved=0),),
        r"GPU {} has [\d.]+ [MK]iB, and [\d.]+ [MK]iB must come back to it\.",
    ),
    "renumbered": (lambda gpu: (Gpu(0, uuid="GPU-another"), gpu._replace(index=1)), ""),
}


@on("8GiB")
def test_a_gpu_that_is_gone_or_smaller_is_told_before_anything_is_tried_and_another_number_is_nothing() -> None:
    kept, uuid = variables(*TWELVE), here().gpus()[0].uuid
    before, moved = content(), away()
    parked_size, free = held(), cuda.free_sizes()
    for name, (change, why) in CHANGES.items():
        seen, said = look(), ""
        changed = seen._replace(gpus=tuple(one for gpu in seen.gpus for one in change(gpu)))
        with (
            mock.patch.object(arrays_module, "_may_fit", return_value=False),
            mock.patch.object(arrays_module, "look", return_value=changed),
            mock.patch.object(cuda, "free_sizes", return_value={} if name in ("gone", "lost") else free),
        ):
            try:
                moved.move_back(lambda: False)
            except Refused as error:
                said = str(error)
        assert re.fullmatch(why.format(uuid), said), (name, said)
    assert len(moved._moved) == len(kept)
    assert held() == parked_size
    moved.move_back()
    assert content() == before


@on("8GiB")
def test_where_the_gpu_is_lost_the_data_is_there_as_arrays() -> None:
    kept = variables(*TWELVE)
    before, moved = [one.numpy().tobytes() for one in kept], away()
    here().lose(0)
    with pytest.raises(Refused, match="is gone or lost"):
        moved.move_back()
    moved.make_unreadable()
    made, count, _ = moved.in_host_memory({"kept": kept, "epochs": 3})

    assert [made[f"kept.{number}"].tobytes() for number in range(count)] == before
    assert (count, made["epochs"]) == (len(kept), 3)


@on("8GiB")
def test_what_was_emptied_cannot_be_read_in_any_way() -> None:
    import numpy as np
    import tensorflow as tf

    first, *_ = kept = variables(1000, 2000, 3000)
    with tf.device("GPU:0"):
        brain = tf.Variable(tf.zeros(9, tf.bfloat16), name="brain")
    with tf.device("CPU:0"):
        other = tf.Variable(tf.ones(4))
    value = first.numpy()
    compiled = [tf.function(lambda: first * 2, jit_compile=jit) for jit in (False, True)]
    for one in compiled:
        one()
    moved = away()
    moved.make_unreadable()

    def differentiated() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(first)
        return tape.gradient(loss, first)

    dataset = tf.data.Dataset.range(3)
    ways: list[Callable[[], Any]] = [
        *compiled, first.numpy, first.value, lambda: first + 1, lambda: np.asarray(first), lambda: tf.reduce_sum(first),
        lambda: first[3:], differentiated, lambda: next(iter(dataset.map(lambda number: first[number]))),
        lambda: tf.function(lambda: first * 3)(), lambda: tf.train.Checkpoint(one=first).write("nowhere"),
        lambda: first.assign_add(value), lambda: tf.raw_ops.ReadVariableOp(resource=first.handle, dtype=tf.float32),
    ]  # fmt: skip
    for way in ways:
        with pytest.raises(RuntimeError, match=re.escape(str(UNREADABLE))):
            way()
    made, count, _ = moved.in_host_memory([*kept, brain, other, "text"])
    assert made["0"].tobytes() == value.tobytes()
    assert (str(made["3"].dtype), sum(made["4"]), made["5"], count) == ("bfloat16", 4, "text", 5)


@on("2x8GiB")
def test_what_a_strategy_spreads_over_gpus_is_in_host_memory_by_its_replicas() -> None:
    import numpy as np
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    with tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"]).scope():
        model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(64), tf.keras.layers.Dense(1)])
        model.compile("adam", "mse")
        each, total = tf.VariableSynchronization.ON_READ, tf.VariableAggregation.SUM
        summed = tf.Variable(tf.zeros(5), synchronization=each, aggregation=total)
    model.fit(np.zeros((64, 64), "float32"), np.zeros(64, "float32"), batch_size=32, verbose=0)
    fill()
    before = [one.numpy().tobytes() for one in model.variables]
    replicas = {f"replica {number}": one.numpy().tobytes() for number, one in enumerate(summed.values)}
    moved = away()
    moved.make_unreadable()

    made, count, errors = moved.in_host_memory(model)

    assert (errors, count > len(before)) == ([], True)  # with its optimizer's
    assert [one.tobytes() for one in made.values()][: len(before)] == before
    both, _, _ = moved.in_host_memory(summed)
    assert {name: one.tobytes() for name, one in both.items()} == replicas
