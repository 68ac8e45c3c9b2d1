"""An import of TensorFlow in trouble: beside another thread's, with closed output, with settings that it refuses."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import threading
from typing import Any
from unittest import mock

import tfgpu_magic
from tests.processes import run
from tests.sizes import CONTEXT, GIB
from tests.slack import SLACK
from tests.tf.on_machine import held, refused, touch_every_gpu
from tfgpu_magic import control
from tfgpu_magic.simgpu import Machine


def test_a_plan_that_could_not_be_told_leaves_nothing_behind_but_growth() -> None:
    with Machine.create("2x8GiB") as machine:
        said, variables, asked = run(machine, _fail_at_the_import, fresh=True)

    assert "is NOT in force" in said
    assert variables == {"CUDA_VISIBLE_DEVICES": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert asked == "growth"


def test_a_policy_that_is_said_while_another_thread_imports_is_refused_and_can_be_said_again() -> None:
    with Machine.create("1x8GiB") as machine:
        amid, after, sizes = run(machine, _apply_while_importing, fresh=True)

    assert "TensorFlow is being imported at this moment; say it again when that is done." in amid
    assert (after, sizes) == ("", [GIB + CONTEXT])


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


def _apply_while_importing() -> tuple[str, str, list[int]]:
    begun, go_on, imported = threading.Event(), threading.Event(), builtins.__import__

    def held_up(name: str, *args: Any) -> Any:
        if name.startswith("tensorflow."):  # the first module of its own
            begun.set()
            go_on.wait(60 * SLACK)
        return imported(name, *args)

    with mock.patch.object(builtins, "__import__", held_up):
        thread = threading.Thread(target=imported, args=("tensorflow",))
        thread.start()
        begun.wait(60 * SLACK)
        amid = refused("limit 1GiB")
        go_on.set()
        thread.join()
    after = refused("limit 1GiB")
    touch_every_gpu()
    return amid, after, held()


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
