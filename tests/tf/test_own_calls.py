"""TensorFlow's own calls keep to a policy, in the oldest release and in the newest; the driver judges.

That they are its own again once the extension is unloaded is in `reports/test_limits_hold.py`.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

import tfgpu_magic
from tests.processes import on
from tests.sizes import CONTEXT, GIB, LITTLE
from tests.tf.on_machine import held, touch_every_gpu
from tests.tf.test_calls import user_growth


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
