"""A policy given before TensorFlow is imported is in force after it, in whatever way and trouble it is imported.

Other ways to import it are the same to what waits for it, which is tried in `policy/test_import_hook.py`.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import tfgpu_magic
from tests.processes import on
from tests.sizes import CONTEXT, GIB
from tests.slack import SLACK
from tests.tf.on_machine import first_op, held, here, refused, touch_every_gpu
from tests.tf.test_calls import ALL
from tfgpu_magic.engine import engine
from tfgpu_magic.policy import script
from tfgpu_magic.policy.process_state import VARIABLES


def plain() -> None:
    import tensorflow  # noqa: F401


def keras_first() -> None:
    import keras  # noqa: F401


def in_a_thread() -> None:
    thread = threading.Thread(target=plain)
    thread.start()
    thread.join()


@pytest.mark.parametrize("form", [plain, keras_first, in_a_thread])
@on("1x8GiB", fresh=True)
def test_what_waits_is_in_force_after_the_import(
    form: Callable[[], None],
) -> None:
    for words in ("growth", "split 2", "visible 0", "pick", "default", "limit 1GiB"):
        tfgpu_magic.apply(words)
    tfgpu_magic.status()
    assert not {"tensorflow", "keras", "pynvml"} & sys.modules.keys()

    form()

    assert held() == [0]
    assert first_op() == [GIB + CONTEXT]


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        pytest.param("limit 2GiB", [2 * GIB + CONTEXT], marks=pytest.mark.smoke),
        ("default", ALL),
    ],
)
@on("1x8GiB", imported=False)
def test_later_words_replace_those_that_still_wait(then: str, expected: list[int] | range) -> None:
    tfgpu_magic.apply("limit 1GiB")
    tfgpu_magic.apply(then)

    (size,) = first_op()

    assert size in expected


@on("1x8GiB", imported=False)
def test_an_import_goes_on_when_the_policy_cannot_be_told_and_says_so() -> None:
    tfgpu_magic.apply("limit 1GiB")
    here().remove_driver()  # the GPU goes away between the words and the import

    with contextlib.redirect_stderr(io.StringIO()) as heard:
        plain()

    assert "`limit 1GiB` is NOT in force" in heard.getvalue()
    assert str(engine.current().asked) == "growth"  # and not all of every GPU


@on("4x8GiB", imported=False)
def test_a_gpu_is_found_at_its_number_where_another_is_lost() -> None:
    here().lose(1)
    tfgpu_magic.apply("visible 3; limit 1GiB")

    assert first_op() == [0, 0, 0, GIB + CONTEXT]


OUTSIDE = {"CUDA_VISIBLE_DEVICES": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "false"}


def variables() -> dict[str, str]:
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


@pytest.mark.smoke
@on("2x8GiB", env=OUTSIDE)
def test_default_leaves_the_environment_as_it_was() -> None:
    tfgpu_magic.apply("visible 0; growth")
    ours = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert variables() == ours

    tfgpu_magic.apply("default")

    assert variables() == OUTSIDE


@on("2x8GiB", imported=False)
def test_the_code_does_the_same_in_a_script() -> None:
    source = script.python(engine.plan("visible 1,0; limit 1=1GiB 0=2GiB"))

    exec(source, {})

    assert first_op() == [2 * GIB + CONTEXT, GIB + CONTEXT]


@on("1x8GiB", fresh=True)
def test_a_policy_that_is_said_while_another_thread_imports_is_refused_and_can_be_said_again() -> None:
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

    assert "TensorFlow is being imported at this moment" in amid
    assert first_op("limit 1GiB") == [GIB + CONTEXT]


@on("1x8GiB", imported=False)
def test_a_closed_output_does_not_break_the_import() -> None:
    tfgpu_magic.apply("limit 1GiB")
    closed = io.StringIO()
    closed.close()

    with contextlib.redirect_stdout(closed), contextlib.redirect_stderr(closed):
        plain()
        touch_every_gpu()

    assert held() == [GIB + CONTEXT]


@on("2x8GiB")
def test_an_error_that_is_not_tensorflows_own_rolls_everything_back_too() -> None:
    import tensorflow as tf

    broken = tf.errors.InternalError(None, None, "broken")
    before = dict(os.environ)

    with mock.patch.object(tf.config, "set_logical_device_configuration", side_effect=broken):
        assert "TensorFlow did not take it" in refused("visible 1; limit 1GiB --grow")

    assert dict(os.environ) == before
