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
from tests.processes import QUIET, on, program, run
from tests.sizes import CONTEXT, GIB, LITTLE, MIB
from tests.tf.on_machine import fill, first_op, held, here, status_text, touch_every_gpu, zeros
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
        two = run(machine, _grow_on_first, "visible 3,2; growth")

    assert [size > 0 for size in one.answer] == [True, True, False, False]
    assert one.answer[0] > one.answer[1]  # TensorFlow's GPU:0 is nvidia-smi's 0
    assert [size > 0 for size in two] == [False, False, True, True]
    assert two[3] > two[2]  # and here it is nvidia-smi's 3


def _grow_on_first(words: str) -> list[int]:
    first_op(words)
    kept = zeros(256 * MIB)
    assert kept.shape
    return held()


def test_growth_holds_little_and_keeps_what_it_grew_until_the_process_ends() -> None:
    with Machine.create("1x8GiB") as machine:
        with program(machine, _grow_and_let_go) as grown:
            assert machine.held(gpu=0) == grown.answer
        assert machine.held(gpu=0) == 0


def _grow_and_let_go() -> int:
    (start,) = first_op("growth")
    kept = zeros(GIB)
    (full,) = held()
    del kept

    assert start in LITTLE
    assert full >= GIB + CONTEXT
    assert held() == [full]
    return full


@on("1x8GiB")
def test_mirrored_strategy_runs_over_one_gpu_split_in_two() -> None:
    import tensorflow as tf

    tfgpu_magic.apply("split 2")
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        variable = tf.Variable(tf.zeros([1024]))

    tf.function(lambda: strategy.run(lambda: variable.assign_add(tf.ones([1024]))))()

    assert strategy.num_replicas_in_sync == 2
    assert len(tf.config.list_logical_devices("GPU")) == 2
    assert 6 * GIB < held()[0] < 6.6 * GIB  # TensorFlow leaves its libraries 1.5 GiB of such a GPU


@on("2x8GiB", imported=False)
def test_growth_works_through_the_variable_alone_also_in_a_program_started_later() -> None:
    tfgpu_magic.apply("growth")
    assert "tensorflow" not in sys.modules
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"

    answer = subprocess.run([sys.executable, "-c", FIRST_OP], capture_output=True, text=True, check=True)

    assert all(size in LITTLE for size in json.loads(answer.stdout))


@pytest.mark.parametrize(("value", "grows"), [("true", True), ("false", False), ("1", False)])
@on("1x8GiB")
def test_the_variable_counts_only_as_true_or_false_and_status_says_what_is_in_force(value: str, grows: bool) -> None:
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = value

    status = status_text("visible 0")

    assert ("growth" in status) is grows
    assert (held()[0] < GIB) is grows


@on("1x8GiB")
def test_a_cap_is_grown_into_and_stops_there() -> None:
    (small,) = first_op("limit 0=2GiB --grow")
    given = fill("GPU:0")

    assert small in LITTLE
    assert 1.8 * GIB < given <= 2 * GIB
    assert held()[0] <= 2 * GIB + CONTEXT


@on("1x8GiB")
def test_a_split_may_grow_too() -> None:
    (size,) = first_op("split 2GiB 1GiB --grow")

    assert size < CONTEXT + 128 * MIB


@on("3x8GiB")
def test_gpus_are_found_by_their_uuids() -> None:
    _, one, other = (gpu.uuid for gpu in here().gpus())

    sizes = first_op(f"visible {one},{other}; limit {one}=1GiB {other}=2GiB")

    assert sizes == [0, GIB + CONTEXT, 2 * GIB + CONTEXT]


@on("1x8GiB")
def test_as_many_cpus_as_were_asked_for_are_there_and_a_strategy_runs_over_them() -> None:
    import tensorflow as tf

    tfgpu_magic.apply("split 3 --cpu")
    cpus = [cpu.name for cpu in tf.config.list_logical_devices("CPU")]
    strategy = tf.distribute.MirroredStrategy(cpus)
    each = strategy.run(lambda: tf.constant(1.0))

    total = strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)

    assert (len(cpus), strategy.num_replicas_in_sync, float(total)) == (3, 3, 3.0)


@on("2x8GiB")
def test_lines_of_env_do_in_a_shell_what_the_words_do() -> None:
    lines = script.shell(engine.plan("visible 1; growth"))

    command = ["sh", "-c", f'{lines}\nexec "$0" -c "$1"', sys.executable, FIRST_OP]
    done = here().run(command, env=QUIET, stdout=subprocess.PIPE, text=True, check=True)

    first, second = json.loads(done.stdout.splitlines()[-1])
    assert first == 0
    assert second in LITTLE


@on("2x8GiB")
def test_code_is_for_a_program_of_its_own_whatever_this_one_does() -> None:
    words = "visible 1; limit 100GiB"
    code = script.python(engine.sketch(words))
    assert 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"' in code
    assert "memory_limit=102400" in code  # more than there is: it may run elsewhere

    for move in (listed, touch_every_gpu):
        move()
        assert script.python(engine.sketch(words)) == code


def test_code_sees_the_gpus_that_this_process_was_told_to_see() -> None:
    with Machine.create("4x8GiB") as machine:
        source = run(machine, _code_of_what_is_in_force, "limit 1GiB")

        assert run(machine, _run_source, source) == [0, 0, ONE, ONE]


def _code_of_what_is_in_force(words: str) -> str:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[2:], "GPU")
    tfgpu_magic.apply(words)
    return script.python(engine.current(), engine.order())


def _run_source(source: str) -> list[int]:
    exec(source, {})
    return first_op()


@on("1x8GiB", env={"TF_FORCE_GPU_ALLOW_GROWTH": "true"})
def test_shell_lines_say_all_that_the_policy_needs() -> None:
    assert script.shell(engine.sketch("growth")) == "export TF_FORCE_GPU_ALLOW_GROWTH=true"
