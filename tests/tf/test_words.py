"""Words by which GPUs are chosen and CPUs split, on the real TensorFlow; and what `code` and `env` give a program."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import tfgpu_magic
from tests.processes import QUIET, run
from tests.sizes import CONTEXT, GIB, LITTLE
from tests.tf.on_machine import first_op, held, touch_every_gpu
from tests.tf.test_calls import listed
from tfgpu_magic import control
from tfgpu_magic.config import script
from tfgpu_magic.simgpu import Machine

FIRST_OP = "from tests.tf.on_machine import first_op; print(first_op())"


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ("pick; limit 1GiB", [0, 0, GIB + CONTEXT]),
        ("pick 2; limit 1GiB", [0, GIB + CONTEXT, GIB + CONTEXT]),
        ("pick 2 --need 4GiB; limit 1GiB", [0, GIB + CONTEXT, GIB + CONTEXT]),
        ("pick 3 --need 1GiB; limit 1GiB", [GIB + CONTEXT] * 3),
    ],
)
def test_picked_gpus_are_those_that_the_driver_says_are_most_free(words: str, sizes: list[int]) -> None:
    with Machine.create("3x8GiB") as machine:
        machine.add_neighbour("6GiB@0")
        machine.add_neighbour("3GiB@1")

        assert run(machine, first_op, words) == sizes


@pytest.mark.parametrize(
    ("words", "sizes"), [("pick --or-cpu; limit 1GiB", [0, 0]), ("pick --need 100MiB --or-cpu; growth", [0, 0])]
)
def test_where_no_gpu_is_free_the_cpu_goes_on_if_that_is_said(words: str, sizes: list[int]) -> None:
    with Machine.create("2x8GiB") as machine:
        for gpu in (0, 1):
            machine.add_neighbour(f"7.8GiB@{gpu}")

        assert run(machine, first_op, words) == sizes


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


def _spread_over_cpus(words: str) -> tuple[int, int, float]:
    import tensorflow as tf

    tfgpu_magic.apply(words)
    cpus = [cpu.name for cpu in tf.config.list_logical_devices("CPU")]
    strategy = tf.distribute.MirroredStrategy(cpus)
    each = strategy.run(lambda: tf.constant(1.0))
    total = strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)
    return len(cpus), strategy.num_replicas_in_sync, float(total)


def _env(words: str) -> str:
    return script.shell(control.plan(words))


def _code_at_each_stage() -> list[str]:
    words = "visible 1; limit 100GiB"
    codes = [script.python(control.sketch(words))]
    for move in (listed, touch_every_gpu):
        move()
        codes.append(script.python(control.sketch(words)))
    return codes


def _code_of_what_is_in_force(words: str) -> str:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[2:], "GPU")
    tfgpu_magic.apply(words)
    return script.python(control.current(), control.order())


def _run_source(source: str) -> list[int]:
    exec(source, {})
    touch_every_gpu()
    return held()


def _shell_lines() -> str:
    return script.shell(control.sketch("growth"))
