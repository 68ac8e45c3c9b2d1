"""The scenes that every book on TensorFlow tells, on the real TensorFlow; the driver's account is the judge."""

from __future__ import annotations

import os

import pytest

import tfgpu_magic
from tests.processes import program, run
from tests.sizes import CONTEXT, GIB, MIB
from tests.tf.on_machine import fill, first_op, held, status_text
from tfgpu_magic.simgpu import Machine


def test_two_programs_each_see_only_their_gpus_and_in_their_order() -> None:
    with Machine.create("4x8GiB") as machine, program(machine, _grow_on_first, "visible 0,1; growth") as one:
        assert [size > 0 for size in one.answer] == [True, True, False, False]
        assert one.answer[0] > one.answer[1]  # TensorFlow's GPU:0 is nvidia-smi's 0

        two = run(machine, _grow_on_first, "visible 3,2; growth")

    assert [size > 0 for size in two] == [False, False, True, True]
    assert two[3] > two[2]  # and here it is nvidia-smi's 3


def test_growth_holds_little_and_keeps_what_it_grew_until_the_process_ends() -> None:
    with Machine.create("1x8GiB") as machine:
        with program(machine, _grow_and_let_go) as grown:
            start, full, after = grown.answer
            assert machine.held(gpu=0) == after
        at_end = machine.held(gpu=0)

    assert start < CONTEXT + 64 * MIB
    assert full >= GIB + CONTEXT
    assert after == full
    assert at_end == 0


def test_mirrored_strategy_runs_over_one_gpu_split_in_two() -> None:
    with Machine.create("1x8GiB") as machine:
        replicas, size, logical = run(machine, _mirrored)

    assert replicas == 2
    assert logical == ["GPU:0", "GPU:1"]
    assert 6 * GIB < size < 6.6 * GIB  # TensorFlow leaves its libraries 1.5 GiB of such a GPU


def test_three_unequal_gpus_get_a_limit_each_by_nvidia_smis_numbers() -> None:
    with Machine.create("2GiB,8GiB,4GiB") as machine:
        sizes = run(machine, first_op, "limit 0=1GiB 1=4GiB 2=2GiB")

    assert sizes == [1 * GIB + CONTEXT, 4 * GIB + CONTEXT, 2 * GIB + CONTEXT]


def test_an_old_gpu_that_tensorflow_takes_is_not_refused() -> None:
    with Machine.create("1x8GiB:cc=5.2") as machine:
        sizes = run(machine, first_op, "limit 1GiB")

    assert sizes == [GIB + CONTEXT]


def test_growth_works_through_the_variable_alone_also_in_a_program_started_later() -> None:
    with Machine.create("2x8GiB") as machine:
        variable, child = run(machine, _growth_in_subprocess, fresh=True)

    assert variable == "true"
    assert all(size < CONTEXT + 64 * MIB for size in child)


@pytest.mark.parametrize(("value", "grows"), [("true", True), ("false", False), ("1", False)])
def test_the_variable_counts_only_as_true_or_false_and_status_says_what_is_in_force(value: str, grows: bool) -> None:
    with Machine.create("1x8GiB") as machine:
        answer = run(machine, status_text, "visible 0", env={"TF_FORCE_GPU_ALLOW_GROWTH": value})
        size = run(machine, first_op, env={"TF_FORCE_GPU_ALLOW_GROWTH": value})

    assert ("growth" in answer) is grows
    assert (size[0] < GIB) is grows


def test_a_cap_is_grown_into_and_stops_there() -> None:
    with Machine.create("1x8GiB") as machine:
        small, given, full = run(machine, _grow_to_the_cap, "limit 0=2GiB --grow")

    assert small < 512 * MIB
    assert given <= 2 * GIB
    assert full <= 2 * GIB + CONTEXT
    assert given > 1.8 * GIB


def test_a_split_may_grow_too() -> None:
    with Machine.create("1x8GiB") as machine:
        sizes = run(machine, first_op, "split 2GiB 1GiB --grow")

    assert sizes[0] < CONTEXT + 128 * MIB


def _grow_on_first(words: str) -> list[int]:
    import tensorflow as tf

    first_op(words)
    with tf.device("GPU:0"):
        kept = tf.zeros(256 * MIB // 4)
    assert kept.shape[0]
    return held()


def _grow_and_let_go() -> tuple[int, int, int]:
    import tensorflow as tf

    (start,) = first_op("growth")
    kept = tf.zeros(GIB // 4)
    (full,) = held()
    del kept
    return start, full, held()[0]


def _mirrored() -> tuple[int, int, list[str]]:
    import tensorflow as tf

    tfgpu_magic.apply("split 2")
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        variable = tf.Variable(tf.zeros([1024]))

    tf.function(lambda: strategy.run(lambda: variable.assign_add(tf.ones([1024]))))()
    names = [gpu.name.removeprefix("/device:") for gpu in tf.config.list_logical_devices("GPU")]
    return strategy.num_replicas_in_sync, held()[0], names


def _growth_in_subprocess() -> tuple[str, list[int]]:
    import subprocess
    import sys

    tfgpu_magic.apply("growth")
    assert "tensorflow" not in sys.modules
    code = "from tests.tf.on_machine import first_op; print(first_op())"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    sizes = [int(size) for size in answer.stdout.strip().strip("[]").split(",")]
    return os.environ["TF_FORCE_GPU_ALLOW_GROWTH"], sizes


def _grow_to_the_cap(words: str) -> tuple[int, int, int]:
    import tensorflow as tf

    tfgpu_magic.apply(words)
    kept = tf.zeros(64 * MIB // 4)
    (small,) = held()
    del kept
    given = fill("GPU:0")
    return small, given, held()[0]
