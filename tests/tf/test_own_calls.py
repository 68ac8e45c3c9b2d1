"""TensorFlow's own calls keep to a policy, in the oldest release and in the newest; the driver judges."""

from __future__ import annotations

import pytest

import tfgpu_magic
from tests.processes import run
from tests.sizes import CONTEXT, GIB, LITTLE
from tests.tf.on_machine import held, touch_every_gpu
from tfgpu_magic.frameworks.tensorflow import calls
from tfgpu_magic.simgpu import Machine


@pytest.mark.parametrize("call", ["gpu_device_name", "is_gpu_available"])
def test_a_question_for_devices_makes_allocators_by_the_policy(call: str) -> None:
    with Machine.create("2x8GiB") as machine:
        assert run(machine, _asked, call) == [GIB + CONTEXT] * 2


@pytest.mark.parametrize(("policy", "sizes"), [("limit 1GiB", {GIB + CONTEXT}), ("growth", LITTLE)])
def test_the_loop_is_accepted_before_and_after_the_first_op(policy: str, sizes: set[int]) -> None:
    with Machine.create("2x8GiB") as machine:
        assert [size in sizes for size in run(machine, _grown, policy)] == [True, True]


def test_both_calls_are_given_back() -> None:
    with Machine.create("1x8GiB") as machine:
        assert run(machine, _restored) == [[False, False], [True, True]]


def _asked(call: str) -> list[int]:
    import tensorflow as tf

    tfgpu_magic.apply("limit 1GiB")
    assert getattr(tf.test, call)()
    touch_every_gpu()
    return held()


def _loop() -> None:
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


def _grown(policy: str) -> list[int]:
    tfgpu_magic.apply(policy)
    _loop()
    touch_every_gpu()
    _loop()
    return held()


def _restored() -> list[list[bool]]:
    from tensorflow.python.client.device_lib import list_local_devices
    from tensorflow.python.eager.context import Context

    def own() -> list[bool]:
        return [Context.set_memory_growth is before, list_local_devices.__defaults__ == (None,)]

    before = Context.set_memory_growth
    tfgpu_magic.apply("limit 1GiB")
    changed = own()
    calls.restore()
    return [changed, own()]
