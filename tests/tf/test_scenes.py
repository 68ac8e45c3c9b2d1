"""The scenes that every book on TensorFlow tells, and each word, on the real TensorFlow; the driver's account judges.

What `code` and `env` give a program is run too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import tfgpu_magic
from tests.processes import QUIET, program, run
from tests.sizes import CONTEXT, GIB, LITTLE, MIB
from tests.tf.on_machine import fill, first_op, held, status_text, touch_every_gpu
from tests.tf.test_calls import listed
from tfgpu_magic.engine import engine
from tfgpu_magic.policy import script
from tfgpu_magic.simgpu import Machine

FIRST_OP = "from tests.tf.on_machine import first_op; print(first_op())"
ONE = GIB + CONTEXT
FULL = ("7.8GiB@0", "7.8GiB@1")


@pytest.mark.parametrize(
    ("gpus", "neighbours", "words", "sizes"),
    [
        # Picked GPUs are those that the driver says are most free.
        ("3x8GiB", ("6GiB@0", "3GiB@1"), "pick; limit 1GiB", [0, 0, ONE]),
        ("3x8GiB", ("6GiB@0", "3GiB@1"), "pick 2; limit 1GiB", [0, ONE, ONE]),
        ("3x8GiB", ("6GiB@0", "3GiB@1"), "pick 2 --need 4GiB; limit 1GiB", [0, ONE, ONE]),
        ("3x8GiB", ("6GiB@0", "3GiB@1"), "pick 3 --need 1GiB; limit 1GiB", [ONE, ONE, ONE]),
        # Where none is free, the CPU goes on if that is said.
        ("2x8GiB", FULL, "pick --or-cpu; limit 1GiB", [0, 0]),
        ("2x8GiB", FULL, "pick --need 100MiB --or-cpu; growth", [0, 0]),
        # Limits are for nvidia-smi's numbers, whatever TensorFlow counts; an old GPU that it takes is not refused.
        ("2GiB,8GiB,4GiB", (), "limit 0=1GiB 1=4GiB 2=2GiB", [ONE, 4 * GIB + CONTEXT, 2 * GIB + CONTEXT]),
        ("1x8GiB:cc=5.2", (), "limit 1GiB", [ONE]),
    ],
)
def test_each_gpu_is_held_as_the_words_say(
    gpus: str, neighbours: tuple[str, ...], words: str, sizes: list[int]
) -> None:
    with Machine.create(gpus) as machine:
        for neighbour in neighbours:
            machine.add_neighbour(neighbour)

        assert run(machine, first_op, words) == sizes


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


def test_gpus_are_found_by_their_uuids() -> None:
    with Machine.create("3x8GiB") as machine:
        _, one, other = (gpu.uuid for gpu in machine.gpus())
        sizes = run(machine, first_op, f"visible {one},{other}; limit {one}=1GiB {other}=2GiB")

    assert sizes == [0, GIB + CONTEXT, 2 * GIB + CONTEXT]


def test_as_many_cpus_as_were_asked_for_are_there_and_a_strategy_runs_over_them() -> None:
    with Machine.create("1x8GiB") as machine:
        cpus, replicas, total = run(machine, _spread_over_cpus, "split 3 --cpu")

    assert (cpus, replicas, total) == (3, 3, 3.0)


def test_lines_of_env_do_in_a_shell_what_the_words_do() -> None:
    with Machine.create("2x8GiB") as machine:
        lines = run(machine, _env, "visible 1; growth")
        command = ["sh", "-c", f'{lines}\nexec "$0" -c "$1"', sys.executable, FIRST_OP]
        done = machine.run(command, env=QUIET, stdout=subprocess.PIPE, text=True, check=True)
    first, second = json.loads(done.stdout.splitlines()[-1])

    assert first == 0
    assert second in LITTLE


def test_code_is_for_a_program_of_its_own_whatever_this_one_does() -> None:
    with Machine.create("2x8GiB") as machine:
        codes = run(machine, _code_at_each_stage)

    assert len(set(codes)) == 1
    assert 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"' in codes[0]
    assert "memory_limit=102400" in codes[0]  # more than there is: it may run elsewhere


def test_code_sees_the_gpus_that_this_process_was_told_to_see() -> None:
    with Machine.create("4x8GiB") as machine:
        source = run(machine, _code_of_what_is_in_force, "limit 1GiB")
        sizes = run(machine, _run_source, source)

    assert sizes == [0, 0, GIB + CONTEXT, GIB + CONTEXT]


def test_shell_lines_say_all_that_the_policy_needs() -> None:
    with Machine.create("1x8GiB") as machine:
        lines = run(machine, _shell_lines, env={"TF_FORCE_GPU_ALLOW_GROWTH": "true"})

    assert lines == "export TF_FORCE_GPU_ALLOW_GROWTH=true"


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


def _spread_over_cpus(words: str) -> tuple[int, int, float]:
    import tensorflow as tf

    tfgpu_magic.apply(words)
    cpus = [cpu.name for cpu in tf.config.list_logical_devices("CPU")]
    strategy = tf.distribute.MirroredStrategy(cpus)
    each = strategy.run(lambda: tf.constant(1.0))
    total = strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)
    return len(cpus), strategy.num_replicas_in_sync, float(total)


def _env(words: str) -> str:
    return script.shell(engine.plan(words))


def _code_at_each_stage() -> list[str]:
    words = "visible 1; limit 100GiB"
    codes = [script.python(engine.sketch(words))]
    for move in (listed, touch_every_gpu):
        move()
        codes.append(script.python(engine.sketch(words)))
    return codes


def _code_of_what_is_in_force(words: str) -> str:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[2:], "GPU")
    tfgpu_magic.apply(words)
    return script.python(engine.current(), engine.order())


def _run_source(source: str) -> list[int]:
    exec(source, {})
    touch_every_gpu()
    return held()


def _shell_lines() -> str:
    return script.shell(engine.sketch("growth"))
