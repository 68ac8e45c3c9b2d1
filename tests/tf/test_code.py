"""The code and the shell lines of a policy are for a program of its own; the code is run, and the driver judges."""

from __future__ import annotations

import tfgpu_magic
from tests.processes import run
from tests.sizes import CONTEXT, GIB
from tests.tf.on_machine import held, touch_every_gpu
from tests.tf.test_calls import listed
from tfgpu_magic import control
from tfgpu_magic.config import script
from tfgpu_magic.simgpu import Machine


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
