"""A policy given before TensorFlow is imported is in force after it, in whatever way and trouble it is imported."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import os
import sys
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import tfgpu_magic
from tests.processes import run
from tests.sizes import CONTEXT, GIB
from tests.slack import SLACK
from tests.tf.on_machine import held, refused, touch_every_gpu
from tfgpu_magic.simgpu import Machine


def plain() -> None:
    import tensorflow  # noqa: F401


def keras_first() -> None:
    import keras  # noqa: F401


def from_tensorflow() -> None:
    from tensorflow import keras  # noqa: F401


def deep_submodule() -> None:
    import tensorflow.python.framework.ops  # noqa: F401


def in_a_thread() -> None:
    thread = threading.Thread(target=plain)
    thread.start()
    thread.join()


def reloaded() -> None:
    import tensorflow

    importlib.reload(tensorflow)


@pytest.mark.parametrize("form", [plain, keras_first, from_tensorflow, deep_submodule, in_a_thread, reloaded])
def test_what_waits_is_in_force_after_the_import(form: Callable[[], None]) -> None:
    with Machine.create("1x8GiB") as machine:
        (size,) = run(machine, _import_then_use, "limit 1GiB", form, fresh=True)

    assert size == GIB + CONTEXT


def test_words_before_the_import_wake_nothing() -> None:
    with Machine.create("2x8GiB") as machine:
        modules = run(
            machine, _modules_after, ["growth", "limit 1GiB", "split 2", "visible 1", "pick", "default"], fresh=True
        )

    assert not {"tensorflow", "keras", "pynvml"} & set(modules)


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        pytest.param("limit 2GiB", range(2 * GIB + CONTEXT, 2 * GIB + CONTEXT + 1), marks=pytest.mark.smoke),
        ("default", range(6 * GIB, 8 * GIB)),
    ],
)
def test_later_words_replace_those_that_still_wait(then: str, expected: range) -> None:
    with Machine.create("1x8GiB") as machine:
        (size,) = run(machine, _import_then_use, "limit 1GiB", plain, then, fresh=True)

    assert size in expected


def test_an_import_goes_on_when_the_policy_cannot_be_told_and_says_so() -> None:
    with Machine.create("1x8GiB") as machine:
        said, asked = run(machine, _import_with_a_broken_plan, fresh=True)

    assert "`limit 1GiB` is NOT in force" in said
    assert asked == "growth"  # and not all of every GPU


def test_a_gpu_is_found_at_its_number_where_another_is_lost() -> None:
    with Machine.create("4x8GiB") as machine:
        machine.lose(1)
        sizes = run(machine, _import_then_use, "visible 3; limit 1GiB", plain, fresh=True)

    assert sizes == [0, 0, 0, GIB + CONTEXT]


@pytest.mark.smoke
def test_default_leaves_the_environment_as_it_was() -> None:
    outside = {"CUDA_VISIBLE_DEVICES": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "false"}
    with Machine.create("2x8GiB") as machine:
        before, between, after = run(machine, _variables, "visible 0; growth", env=outside)

    assert between == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "0",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    assert after == before == outside


def test_the_code_does_the_same_in_a_script() -> None:
    words = "visible 1,0; limit 1=1GiB 0=2GiB"
    with Machine.create("2x8GiB") as machine:
        sizes = run(machine, _run_as_script, words, fresh=True)

    assert sizes == [2 * GIB + CONTEXT, GIB + CONTEXT]


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


def _import_then_use(words: str, form: Callable[[], None], *later: str) -> list[int]:
    assert "tensorflow" not in sys.modules
    for asked in (words, *later):
        tfgpu_magic.apply(asked)
    assert "tensorflow" not in sys.modules
    form()
    assert not any(held())
    touch_every_gpu()
    return held()


def _modules_after(policies: list[str]) -> list[str]:
    for words in policies:
        tfgpu_magic.apply(words)
    tfgpu_magic.status()
    return list(sys.modules)


def _import_with_a_broken_plan() -> tuple[str, str]:
    tfgpu_magic.apply("limit 1GiB")
    machine = Machine.current()
    assert machine is not None
    machine.remove_driver()  # the GPU goes away between the words and the import
    heard = io.StringIO()
    with contextlib.redirect_stderr(heard):
        import tensorflow  # noqa: F401
    from tfgpu_magic.engine import engine

    return heard.getvalue(), str(engine.current().asked)


def _variables(words: str) -> list[dict[str, str]]:
    from tfgpu_magic.policy.process_state import VARIABLES

    def now() -> dict[str, str]:
        return {name: os.environ[name] for name in sorted(VARIABLES) if name in os.environ}

    seen = [now()]
    for asked in (words, "default"):
        tfgpu_magic.apply(asked)
        seen.append(now())
    return seen


def _run_as_script(words: str) -> list[int]:
    from tfgpu_magic.engine import engine
    from tfgpu_magic.policy import script

    source = script.python(engine.plan(words))
    exec(source, {})
    touch_every_gpu()
    return held()


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
