"""On its way back each variable of the real TensorFlow is whole on the GPU or safe in host memory, whatever fails."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import tfgpu_magic
from tests.parking.test_tensorflow import content, fill, many
from tests.processes import on, program, run
from tests.sizes import LITTLE, MIB
from tests.tf.on_machine import held
from tests.waiting import until
from tfgpu_magic.frameworks import cuda
from tfgpu_magic.model.snapshot import Gpu
from tfgpu_magic.monitor.see import look
from tfgpu_magic.parking import arrays as arrays_module
from tfgpu_magic.parking.arrays import MovedArrays
from tfgpu_magic.parking.frameworks import UNREADABLE, ParkingError
from tfgpu_magic.parking.frameworks import tensorflow as parked
from tfgpu_magic.simgpu import Machine


def back(mechanism: MovedArrays, wanted: Callable[[], bool] = lambda: True) -> None:
    mechanism.move_back(wanted, lambda _: None)


def failing_at_each() -> list[tuple[str, int, int, bool]]:
    """Have each step of each variable's way back fail; return what was said, what was away, and if all was whole."""
    kept = many()
    before, found = content(), []
    for error in (RuntimeError("it broke"), RuntimeError("OOM when allocating tensor")):
        for name in ("_assign", "_wait"):
            owner: Any = parked.Variable if name == "_assign" else parked
            real = getattr(owner, name)
            for step in range(len(kept)):
                mechanism = MovedArrays()
                mechanism.move_out()
                calls = iter(range(100))

                def fails(*args: Any, calls: Any = calls, real: Any = real, last: int = step, why: Any = error) -> Any:
                    if next(calls) == last:
                        raise why
                    return real(*args)

                said = ""
                patch = mock.patch.object
                with patch(owner, name, fails), patch(arrays_module, "_TRY_EVERY", 0.0):
                    try:
                        back(mechanism)
                    except RuntimeError as raised:
                        said = str(raised)
                left = len(mechanism._moved)
                back(mechanism)
                found.append((said, step, left, content() == before))
    return found


def test_what_fails_on_the_way_back_is_safe_in_host_memory_and_comes_at_the_next_try() -> None:
    with Machine.create("8GiB") as machine:
        found = run(machine, failing_at_each)

    failed = [("it broke", step, 12 - step, True) for step in range(12)]
    tried_again = [("", step, 0, True) for step in range(12)]
    assert found == [*failed * 2, *tried_again * 2]


def interrupted_at_each() -> list[tuple[int, bool]]:
    kept = many()
    before, found = content(), []
    for step in range(len(kept) + 2):  # it is asked before the first, too
        mechanism = MovedArrays()
        mechanism.move_out()
        asked = iter(range(100))
        back(mechanism, lambda asked=asked, step=step: next(asked) < step)  # type: ignore[misc]
        left = len(mechanism._moved)
        back(mechanism)
        found.append((left, content() == before))
    return found


def test_who_interrupts_at_any_variable_finds_the_others_in_host_memory() -> None:
    with Machine.create("8GiB") as machine:
        assert run(machine, interrupted_at_each) == [(12, True), *((12 - step, True) for step in range(13))]


def gpus_that_change() -> tuple[dict[str, str], int, list[int], bool]:
    """Come back to GPUs that have changed, while another process has the GPU."""
    kept, machine = many(), Machine.current()
    assert machine is not None
    before = content()
    mechanism = MovedArrays()
    mechanism.move_out()
    away, real, said = held(), cuda.free(), dict[str, str]()
    changes: dict[str, Callable[[Gpu], tuple[Gpu, ...]]] = {
        "gone": lambda _: (),
        "lost": lambda gpu: (gpu._replace(lost=True),),
        "smaller": lambda gpu: (gpu._replace(total=10_000, reserved=0),),
        "renumbered": lambda gpu: (Gpu(0, uuid="GPU-another"), gpu._replace(index=1)),
    }
    for name, change in changes.items():
        seen = look()
        changed = seen._replace(gpus=tuple(one for gpu in seen.gpus for one in change(gpu)))
        with (
            mock.patch.object(arrays_module, "_may_fit", return_value=False),
            mock.patch.object(arrays_module, "look", return_value=changed),
            mock.patch.object(cuda, "free", return_value={} if name in ("gone", "lost") else real),
        ):
            try:
                back(mechanism, lambda: False)
                said[name] = ""
            except ParkingError as error:
                said[name] = str(error)
    left = len(mechanism._moved)
    there = held()
    back(mechanism)
    return said, left, [there[0] - away[0]], content() == before and bool(kept)


def test_a_gpu_that_is_gone_or_smaller_is_told_before_anything_is_tried_and_another_number_is_nothing() -> None:
    with Machine.create("8GiB") as machine:
        said, left, taken, same = run(machine, gpus_that_change)
        uuid = machine.gpus()[0].uuid

    assert re.fullmatch(rf"GPU {uuid}, to which [\d.]+ [MK]iB must come back, is gone or lost\.", said["gone"])
    assert said["lost"] == said["gone"]
    assert re.fullmatch(rf"GPU {uuid} has [\d.]+ [MK]iB, and [\d.]+ [MK]iB must come back to it\.", said["smaller"])
    assert said["renumbered"] == ""
    assert (left, taken, same) == (12, [0], True)


def a_lost_gpu() -> tuple[str, bool, list[bool]]:
    kept, machine = many(), Machine.current()
    assert machine is not None
    before = [one.numpy().tobytes() for one in kept]
    mechanism = MovedArrays()
    mechanism.move_out()
    machine.lose(0)
    with pytest.raises(ParkingError) as error:
        back(mechanism)
    mechanism.make_unreadable()
    made, count, _ = mechanism.in_host_memory({"kept": kept, "epochs": 3})
    same = [made[f"kept.{number}"].tobytes() == one for number, one in enumerate(before)]
    return str(error.value), count == 12 and made["epochs"] == 3, same


def test_where_the_gpu_is_lost_the_data_is_there_as_arrays() -> None:
    with Machine.create("8GiB") as machine:
        said, counted, same = run(machine, a_lost_gpu)

    assert "is gone or lost" in said
    assert counted
    assert same == [True] * 12


def reading() -> tuple[list[str], list[str], Any, int]:
    """Make what is away unreadable, and read it in every way; return the errors, and what is in host memory."""
    import numpy as np
    import tensorflow as tf

    first, *_ = kept = many(3)
    with tf.device("GPU:0"):
        brain = tf.Variable(tf.zeros(9, tf.bfloat16), name="brain")
    with tf.device("CPU:0"):
        other = tf.Variable(tf.ones(4))
    fill()
    value = first.numpy()
    compiled = [tf.function(lambda: first * 2, jit_compile=jit) for jit in (False, True)]
    for one in compiled:
        one()
    mechanism = MovedArrays()
    mechanism.move_out()
    mechanism.make_unreadable()

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
    errors = []
    for way in ways:
        try:
            errors.append(f"read {way()}")
        except RuntimeError as error:
            errors.append(str(error))
    made, count, _ = mechanism.in_host_memory([*kept, brain, other, "text"])
    same = made["0"].tobytes() == value.tobytes() and sum(made["4"]) == 4 and made["5"] == "text"
    return errors, [str(made["3"].dtype)], same, count


def test_what_was_emptied_cannot_be_read_in_any_way() -> None:
    with Machine.create("8GiB") as machine:
        errors, types, same, count = run(machine, reading)

    assert errors == [UNREADABLE] * 14
    assert (types, same, count) == (["bfloat16"], True, 5)


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
    arrays = MovedArrays()
    arrays.move_out()
    arrays.make_unreadable()

    made, count, errors = arrays.in_host_memory(model)

    assert (errors, count > len(before)) == ([], True)  # with its optimizer's
    assert [one.tobytes() for one in made.values()][: len(before)] == before
    both, _, _ = arrays.in_host_memory(summed)
    assert {name: one.tobytes() for name, one in both.items()} == replicas


def stops_midway(way: str) -> int:
    """Park, under the lock for host memory, or come back, on a thread that stops midway for good."""
    kept, mechanism, reached = many(), MovedArrays(), threading.Event()
    kept_by_thread = [kept]
    if way == "put_back":
        mechanism.move_out()
    calls, real = iter(range(100)), getattr(parked.Variable, way)

    def stops(self: Any) -> None:
        if next(calls) == 5:
            reached.set()
            threading.Event().wait()
        real(self)

    setattr(parked.Variable, way, stops)
    does = mechanism.move_out if way == "take_out" else lambda: back(mechanism)
    threading.Thread(target=lambda: (kept_by_thread, does()), daemon=True).start()  # type: ignore[no-untyped-call]
    until(reached.is_set)
    return held()[0]


def parks_at_once() -> tuple[int, int]:
    kept, mechanism = many(), MovedArrays()
    before = content()
    mechanism.move_out()
    away = held()[0]
    back(mechanism)
    assert kept
    assert content() == before
    return away, held()[0]


@pytest.mark.parametrize("way", ["take_out", "put_back"])
def test_a_process_that_is_killed_midway_leaves_nothing_locked_and_nothing_held(way: str) -> None:
    with Machine.create("8GiB") as machine, program(machine, stops_midway, way) as stopped:
        assert stopped.answer > 0
        os.kill(stopped.pid, signal.SIGKILL)
        until(lambda: machine.held(pid=stopped.pid) == 0)
        away, after = run(machine, parks_at_once)

    assert away in LITTLE
    assert after > away
    assert after < 512 * MIB
