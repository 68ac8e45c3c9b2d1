"""An import of TensorFlow in trouble: beside another thread's, with closed output, with settings that it refuses."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading

import tfgpu_magic
from tests.processes import run
from tests.sizes import CONTEXT, GIB
from tests.tf.on_machine import held, refused, touch_every_gpu
from tfgpu_magic import control
from tfgpu_magic.simgpu import Machine


def test_a_plan_that_could_not_be_told_leaves_nothing_behind_but_growth() -> None:
    with Machine.create("2x8GiB") as machine:
        said, variables, asked = run(machine, _fail_at_the_import, fresh=True)

    assert "is NOT in force" in said
    assert variables == {"CUDA_VISIBLE_DEVICES": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert asked == "growth"


def test_an_import_while_another_thread_imports_is_waited_for() -> None:
    with Machine.create("1x8GiB") as machine:
        answer, sizes = run(machine, _apply_while_importing, fresh=True)

    assert answer == "in time" or "being imported at this moment" in answer
    assert (sizes[0] == GIB + CONTEXT) is (answer == "in time")


def test_a_closed_output_does_not_break_the_import() -> None:
    with Machine.create("1x8GiB") as machine:
        assert run(machine, _import_with_closed_output, fresh=True) == [GIB + CONTEXT]


def test_an_error_that_is_not_tensorflows_own_rolls_everything_back_too() -> None:
    with Machine.create("2x8GiB") as machine:
        refused, changed = run(machine, _break_tensorflow)

    assert "TensorFlow did not take it" in refused
    assert not changed


def _fail_at_the_import() -> tuple[str, dict[str, str], str]:
    tfgpu_magic.apply("visible 0; limit 0=1GiB --grow")
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard):
        import tensorflow  # noqa: F401
    names = ("TF_FORCE_GPU_ALLOW_GROWTH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    variables = {name: os.environ[name] for name in names if name in os.environ}
    return heard.getvalue(), variables, str(control.current().asked)


def _apply_while_importing() -> tuple[str, list[int]]:
    thread = threading.Thread(target=__import__, args=("tensorflow",))
    thread.start()
    while "tensorflow" not in sys.modules:
        pass
    answer = refused("limit 1GiB") or "in time"
    thread.join()
    touch_every_gpu()
    return answer, held()


def _import_with_closed_output() -> list[int]:
    tfgpu_magic.apply("limit 1GiB")
    closed = io.StringIO()
    closed.close()
    with contextlib.redirect_stdout(closed), contextlib.redirect_stderr(closed):
        import tensorflow  # noqa: F401
    touch_every_gpu()
    return held()


def _break_tensorflow() -> tuple[str, bool]:
    import tensorflow as tf

    def broken(*_: object) -> None:
        raise tf.errors.InternalError(None, None, "broken")

    before = dict(os.environ)
    tf.config.set_logical_device_configuration = broken
    return refused("visible 1; limit 1GiB --grow"), dict(os.environ) != before
