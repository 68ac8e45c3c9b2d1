"""Settings that change hands: what the user sets beside us, takes back or forks; the driver judges."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Callable

import pytest

import tfgpu_magic
from tests.processes import run
from tests.sizes import CONTEXT, GIB, LITTLE
from tests.tf.on_machine import first_op, held, refused, touch_every_gpu
from tests.tf.test_calls import ALL, limited_and_ready, listed, nothing, user_growth_on_one, user_limit
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.frameworks.tensorflow import devices
from tfgpu_magic.simgpu import Machine

LIMITED = range(GIB + CONTEXT, GIB + CONTEXT + 1)


def limit_of_4096() -> None:
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=4096)])


def other_variables() -> None:
    os.environ.update(CUDA_VISIBLE_DEVICES="1", TF_FORCE_GPU_ALLOW_GROWTH="false")


def variable_taken_back() -> None:
    del os.environ["CUDA_VISIBLE_DEVICES"]


def async_allocator() -> None:
    os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"


@pytest.mark.parametrize(
    ("words", "change", "told"),
    [
        ("limit 1GiB", limit_of_4096, "the limit of GPU 0 is 4 GiB"),
        ("visible 0; growth", other_variables, "CUDA_VISIBLE_DEVICES is '1'"),
        ("visible 0; growth", variable_taken_back, "CUDA_VISIBLE_DEVICES is unset"),
        ("limit 1GiB", async_allocator, "TF_GPU_ALLOCATOR is 'cuda_malloc_async'"),
    ],
)
@pytest.mark.parametrize("use", [True, False])
def test_what_somebody_changed_after_us_is_not_called_in_force(
    words: str, change: Callable[[], None], told: str, use: bool
) -> None:
    with Machine.create("2x8GiB") as machine:
        status, again = run(machine, _change_after, words, change, use)

    assert told in status
    assert "In force" not in status
    assert ("it was changed since" in again) is use  # before the first op, saying it again mends it


def test_before_the_first_op_saying_it_again_mends_what_was_changed() -> None:
    with Machine.create("2x8GiB") as machine:
        assert run(machine, _mend) == [GIB + CONTEXT, GIB + CONTEXT]


@pytest.mark.parametrize(
    ("before", "first", "then", "holds"),
    [
        (nothing, "growth", "limit 1GiB", (LIMITED, LIMITED)),
        (nothing, "split 2", "limit 1GiB", (LIMITED, LIMITED)),
        (nothing, "limit 1GiB", "default", (ALL, ALL)),
        (nothing, "split 2 --cpu", "default", (ALL, ALL)),
        (nothing, "limit 1GiB --grow", "growth off", (ALL, ALL)),
        (listed, "visible 1", "default", (ALL, ALL)),
        (listed, "growth", "default", (ALL, ALL)),
        (listed, "visible 1; growth", "visible all", (LITTLE, LITTLE)),
        (listed, "limit 1GiB", "visible 1", (range(1), LIMITED)),
        (listed, "split 2 --cpu", "growth", (LITTLE, LITTLE)),
    ],
)
def test_until_the_first_op_later_words_replace_earlier_ones_also_after_the_list(
    before: Callable[[], None], first: str, then: str, holds: tuple[range, range]
) -> None:
    with Machine.create("2x8GiB") as machine:
        sizes = run(machine, _replace, before, first, then)

    assert [size in expected for size, expected in zip(sizes, holds, strict=True)] == [True, True]


@pytest.mark.parametrize(
    ("words", "hide", "left"),
    [
        ("default", "visible 0", "0"),
        ("visible all", "visible 0", "0"),
        ("visible 0,1", "visible 0", "0"),
        ("visible all", "visible none", "-1"),
    ],
)
def test_a_gpu_that_cuda_was_told_to_hide_comes_back_only_with_a_restart(words: str, hide: str, left: str) -> None:
    with Machine.create("2x8GiB") as machine:
        refused, variable = run(machine, _hide_and_list, words, hide)

    assert f'before TensorFlow\'s first operation:   tfgpu_magic.apply("{words}")' in refused
    assert variable == left


def test_a_context_of_nobody_knows_whom_is_no_promise_also_with_torch_imported() -> None:
    with Machine.create("1x8GiB") as machine:
        refused = run(machine, _poisoned_with_torch)

    assert "another library (torch)" in refused
    assert "Nobody can tell which, so nothing is promised" in refused


def test_growth_on_some_gpus_is_refused_also_when_only_gpus_are_chosen() -> None:
    with Machine.create("2x8GiB") as machine:
        assert "  %tf_gpu growth\n" in run(machine, _refused_after, user_growth_on_one, "visible 0,1")


@pytest.mark.parametrize("before", [listed, limited_and_ready])
def test_a_forked_child_is_told_that_cuda_is_lost_to_it(before: Callable[[], None]) -> None:
    with Machine.create("1x8GiB") as machine:
        told = run(machine, _look_and_apply_in_a_fork, before)

    assert "used the GPUs when this process was forked" in told
    assert "forked from one in which CUDA was running" in told


def test_status_shows_the_limit_that_the_user_set() -> None:
    with Machine.create("1x8GiB") as machine:
        text = run(machine, _status_after, user_limit)

    assert "limit 512 MiB" in text


def test_looking_does_not_make_tensorflow_list_its_devices() -> None:
    with Machine.create("1x8GiB") as machine:
        assert run(machine, _look_after_foreign_cuinit) is False


def _change_after(words: str, change: Callable[[], None], use: bool) -> tuple[str, str]:
    tfgpu_magic.apply(words)
    change()
    if use:
        touch_every_gpu()
    text = repr(tfgpu_magic.status())
    with contextlib.suppress(tfgpu_magic.Refused):
        tfgpu_magic.apply(words)
        return text, ""
    return text, refused(words)


def _mend() -> list[int]:
    tfgpu_magic.apply("limit 1GiB")
    limit_of_4096()
    tfgpu_magic.apply("limit 1GiB")
    touch_every_gpu()
    return held()


def _replace(before: Callable[[], None], first: str, then: str) -> list[int]:
    before()
    tfgpu_magic.apply(first)
    return first_op(then)


def _hide_and_list(words: str, hide: str) -> tuple[str, str]:
    tfgpu_magic.apply(hide)
    listed()
    return refused(words), os.environ["CUDA_VISIBLE_DEVICES"]


def _poisoned_with_torch() -> str:
    from tensorflow.python.client import device_lib

    sys.modules["torch"] = types.ModuleType("torch")
    device_lib.list_local_devices()
    return refused("limit 1GiB")


def _refused_after(before: Callable[[], None], words: str) -> str:
    before()
    return refused(words)


def _look_and_apply_in_a_fork(before: Callable[[], None]) -> str:
    before()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, f"{tfgpu_magic.status()}{refused('limit 1GiB')}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return os.read(ours, 4096).decode()


def _status_after(before: Callable[[], None]) -> str:
    before()
    return repr(tfgpu_magic.status())


def _look_after_foreign_cuinit() -> bool:
    import ctypes

    import tensorflow  # noqa: F401

    ctypes.CDLL("libcuda.so.1").cuInit(0)
    tfgpu_magic.status()
    RUNTIME.observe(tfgpu_magic.look().gpus)
    return devices.listed()
