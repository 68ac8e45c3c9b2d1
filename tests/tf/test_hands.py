"""Settings that change hands: what the user sets beside us, takes back or forks; the driver judges."""

from __future__ import annotations

import ctypes
import os
import sys
import types
from collections.abc import Callable, Collection

import pytest

import tfgpu_magic
from tests.processes import on
from tests.sizes import CONTEXT, GIB, LITTLE
from tests.tf.on_machine import first_op, held, in_a_fork, refused, touch_every_gpu
from tests.tf.test_calls import (
    ALL,
    limited_and_ready,
    listed,
    local_devices,
    nothing,
    user_growth,
    user_growth_on_one,
    user_limit,
)
from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.frameworks.tensorflow import devices

LIMITED = range(GIB + CONTEXT, GIB + CONTEXT + 1)


def other_variables() -> None:
    os.environ.update(CUDA_VISIBLE_DEVICES="1", TF_FORCE_GPU_ALLOW_GROWTH="false")


def variable_taken_back() -> None:
    del os.environ["CUDA_VISIBLE_DEVICES"]


def async_allocator() -> None:
    os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"


@pytest.mark.parametrize(
    ("words", "change", "told"),
    [
        ("limit 1GiB", user_limit, "the limit of GPU 0 is 512 MiB"),
        ("visible 0; growth", other_variables, "CUDA_VISIBLE_DEVICES is '1'"),
        ("visible 0; growth", variable_taken_back, "CUDA_VISIBLE_DEVICES is unset"),
        ("limit 1GiB", async_allocator, "TF_GPU_ALLOCATOR is 'cuda_malloc_async'"),
    ],
)
@pytest.mark.parametrize("use", [True, False])
@on("2x8GiB")
def test_what_somebody_changed_after_us_is_not_called_in_force(
    words: str, change: Callable[[], None], told: str, use: bool
) -> None:
    tfgpu_magic.apply(words)
    change()
    if use:
        touch_every_gpu()

    status = repr(tfgpu_magic.status())

    assert told in status
    assert "In force" not in status
    refused(words)
    assert ("it was changed since" in refused(words)) is use  # before the first op, saying it again mends it


@on("2x8GiB")
def test_before_the_first_op_saying_it_again_mends_what_was_changed() -> None:
    tfgpu_magic.apply("limit 1GiB")
    user_limit()

    assert first_op("limit 1GiB") == [GIB + CONTEXT, GIB + CONTEXT]


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
@on("2x8GiB")
def test_until_the_first_op_later_words_replace_earlier_ones_also_after_the_list(
    before: Callable[[], None], first: str, then: str, holds: tuple[range, range]
) -> None:
    before()
    tfgpu_magic.apply(first)

    sizes = first_op(then)

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
@on("2x8GiB")
def test_a_gpu_that_cuda_was_told_to_hide_comes_back_only_with_a_restart(words: str, hide: str, left: str) -> None:
    tfgpu_magic.apply(hide)
    listed()

    assert f'before TensorFlow\'s first operation:   tfgpu_magic.apply("{words}")' in refused(words)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == left


@on("1x8GiB")
def test_a_context_of_nobody_knows_whom_is_no_promise_also_with_torch_imported() -> None:
    sys.modules["torch"] = types.ModuleType("torch")
    local_devices()

    why = refused("limit 1GiB")

    assert "another library (torch)" in why
    assert "Nobody can tell which, so nothing is promised" in why


@on("2x8GiB")
def test_growth_on_some_gpus_is_refused_also_when_only_gpus_are_chosen() -> None:
    user_growth_on_one()

    assert "  %tf_gpu growth\n" in refused("visible 0,1")


@pytest.mark.parametrize("before", [listed, limited_and_ready])
@on("1x8GiB")
def test_a_forked_child_is_told_that_cuda_is_lost_to_it(before: Callable[[], None]) -> None:
    before()

    told = in_a_fork(lambda: f"{tfgpu_magic.status()}{refused('limit 1GiB')}")

    assert "used the GPUs when this process was forked" in told
    assert "forked from one in which CUDA was running" in told


@on("1x8GiB")
def test_status_shows_the_limit_that_the_user_set() -> None:
    user_limit()

    assert "limit 512 MiB" in repr(tfgpu_magic.status())


@on("1x8GiB")
def test_looking_does_not_make_tensorflow_list_its_devices() -> None:
    ctypes.CDLL("libcuda.so.1").cuInit(0)

    tfgpu_magic.status()
    RUNTIME.observe(tfgpu_magic.look().gpus)

    assert not devices.has_list()


# --- calls of TensorFlow's own keep to a policy, in the oldest release and in the newest ---


@pytest.mark.parametrize("call", ["gpu_device_name", "is_gpu_available"])
@on("2x8GiB")
def test_a_question_for_devices_makes_allocators_by_the_policy(call: str) -> None:
    import tensorflow as tf

    tfgpu_magic.apply("limit 1GiB")

    assert getattr(tf.test, call)()
    touch_every_gpu()
    assert held() == [GIB + CONTEXT] * 2


@pytest.mark.parametrize(("policy", "sizes"), [("limit 1GiB", [GIB + CONTEXT]), ("growth", LITTLE)])
@on("2x8GiB")
def test_the_loop_is_accepted_before_and_after_the_first_op(policy: str, sizes: Collection[int]) -> None:
    tfgpu_magic.apply(policy)
    user_growth()
    touch_every_gpu()

    user_growth()

    assert all(size in sizes for size in held())
