"""Every trap of TensorFlow's own calls, a row each: what it would not do as it was told is refused or said.

A row runs in a process of its own: something is done `before`, the words are applied, and then TensorFlow is used.
What the driver accounts to the process afterwards is compared with what was promised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

import tfgpu_magic
from tests.processes import run
from tests.sizes import CONTEXT, GIB, LITTLE
from tests.tf.on_machine import held, touch_every_gpu
from tfgpu_magic.simgpu import Machine

ALL = range(6 * GIB, 8 * GIB)
"""What TensorFlow takes of a GPU of 8 GiB without a limit."""


def nothing() -> None: ...


def listed() -> None:
    import tensorflow as tf

    tf.config.list_physical_devices("GPU")


def ready() -> None:
    touch_every_gpu()


def user_growth() -> None:
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


def user_growth_on_one() -> None:
    import tensorflow as tf

    tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)


def user_limit() -> None:
    import tensorflow as tf

    gpu = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=512)])


def grown() -> None:
    tfgpu_magic.apply("growth")
    touch_every_gpu()


def limited() -> None:
    tfgpu_magic.apply("limit 1GiB")


def limited_and_ready() -> None:
    limited()
    touch_every_gpu()


def ready_without_gpu() -> None:
    tfgpu_magic.apply("visible none")
    touch_every_gpu()


def local_devices() -> None:
    from tensorflow.python.client import device_lib

    device_lib.list_local_devices()


def is_gpu_available() -> None:
    import tensorflow as tf

    tf.test.is_gpu_available()


def gpu_device_name() -> None:
    import tensorflow as tf

    tf.test.gpu_device_name()


def fraction_in_a_v1_session() -> None:
    import tensorflow as tf

    options = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=0.25)
    tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(gpu_options=options))


def reset_context() -> None:
    from tensorflow.python.eager import context

    touch_every_gpu()
    context._reset_context()


@dataclass(frozen=True)
class Row:
    trap: str
    words: str
    refused: str = ""
    """What the refusal says; empty where the words are applied."""
    said: str = ""
    """What a note of the plan says."""
    before: Callable[[], None] = nothing
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: str = "2x8GiB"
    neighbour: str = ""
    holds: tuple[range | int, ...] = ()
    """What is held of each GPU after the first op, in bytes."""


LIMITED = (GIB + CONTEXT, GIB + CONTEXT)

ROWS = [
    Row("growth after the first op", "growth", refused="already using the GPUs", before=ready),
    Row("growth again after the first op", "growth", before=grown, holds=(LITTLE, LITTLE)),
    Row("growth off is the default", "growth off", holds=(ALL, ALL)),
    Row("limit after the first op", "limit 2GiB", refused="already using the GPUs", before=ready),
    Row("the same limit again after the first op", "limit 1GiB", before=limited_and_ready, holds=LIMITED),
    Row(
        "another limit after the first op", "limit 2GiB", refused="cannot be changed any more", before=limited_and_ready
    ),
    Row("visible after the first op", "visible 0", refused="already using the GPUs", before=ready),
    Row("cpus after the first op", "split 4 --cpu", refused="already using its devices", before=ready_without_gpu),
    Row("an order that TensorFlow would ignore", "visible 1,0", refused="order of its GPUs is fixed", before=listed),
    Row("an order while CUDA still asks", "visible 1,0; limit 1=1GiB 0=2GiB", holds=(2 * GIB + CONTEXT, GIB + CONTEXT)),
    Row("visible once listed, the CPU kept", "visible 1", before=listed, holds=(0, ALL)),
    Row(
        "a GPU that CUDA was told to hide",
        "visible 1",
        refused="does not show it GPU 1",
        before=listed,
        env={"CUDA_VISIBLE_DEVICES": "0"},
    ),
    Row(
        "CUDA_VISIBLE_DEVICES until CUDA starts",
        "visible 1",
        said="CUDA_VISIBLE_DEVICES was '0';",
        env={"CUDA_VISIBLE_DEVICES": "0"},
        holds=(0, ALL),
    ),
    Row("growth on some GPUs only, by the user", "growth", before=user_growth_on_one, holds=(LITTLE, LITTLE)),
    Row("growth on a GPU with a limit", "growth", before=limited, holds=(LITTLE, LITTLE)),
    Row("growth on a GPU that the user limited", "growth", before=user_limit, holds=(LITTLE, LITTLE)),
    Row("a limit on a GPU with growth", "limit 1GiB", said="set_memory_growth", before=user_growth, holds=LIMITED),
    Row("logical CPUs beside growth", "growth; split 2 --cpu", holds=(LITTLE, LITTLE)),
    Row(
        "logical CPUs beside the user's growth",
        "split 2 --cpu",
        said="set_memory_growth",
        before=user_growth,
        holds=(LITTLE, LITTLE),
    ),
    Row("a limit on one GPU of two", "limit 0=1GiB", said="No limit is set for GPU 1", holds=(GIB + CONTEXT, ALL)),
    Row(
        "the variable says no",
        "growth",
        said="was 'false';",
        env={"TF_FORCE_GPU_ALLOW_GROWTH": "false"},
        holds=(LITTLE, LITTLE),
    ),
    Row(
        "the variable says yes",
        "limit 1GiB",
        said="was 'true';",
        env={"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
        holds=LIMITED,
    ),
    Row(
        "the variable says yes to growth off",
        "growth off",
        said="was 'true';",
        env={"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
        holds=(ALL, ALL),
    ),
    Row(
        "the variable says what TensorFlow ignores",
        "visible 0",
        said="only true and false count",
        env={"TF_FORCE_GPU_ALLOW_GROWTH": "1"},
        holds=(ALL, 0),
    ),
    Row("a limit and growth together", "limit 1GiB --grow", holds=(LITTLE, LITTLE)),
    Row(
        "an allocator that keeps to no limit",
        "limit 1GiB",
        refused="cuda_malloc_async",
        env={"TF_GPU_ALLOCATOR": "cuda_malloc_async"},
    ),
    Row(
        "an allocator that grows by itself",
        "growth",
        said="cuda_malloc_async",
        env={"TF_GPU_ALLOCATOR": "cuda_malloc_async"},
        holds=(LITTLE, LITTLE),
    ),
    Row(
        "an undocumented cap below a limit",
        "limit 1GiB",
        refused="takes no more than 512 MiB of any GPU",
        env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "512"},
    ),
    Row(
        "an undocumented cap above a limit",
        "limit 1GiB",
        said="TF_PER_DEVICE_MEMORY_LIMIT_MB=2048",
        env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "2048"},
        holds=LIMITED,
    ),
    Row(
        "a full GPU once listed",
        "visible 1",
        said="restart it: TensorFlow may hang at the next",
        before=listed,
        neighbour="7.8GiB@0",
        holds=(0, ALL),
    ),
    Row(
        "an undocumented cap",
        "growth",
        said="TF_PER_DEVICE_MEMORY_LIMIT_MB=1024",
        env={"TF_PER_DEVICE_MEMORY_LIMIT_MB": "1024"},
        holds=(LITTLE, LITTLE),
    ),
    Row(
        "a fraction in a v1 session",
        "limit 1GiB",
        refused="accept the setting and not enforce it",
        before=fraction_in_a_v1_session,
    ),
    Row("device_lib.list_local_devices", "growth", refused="list_local_devices", before=local_devices),
    Row("tf.test.is_gpu_available", "limit 1GiB", refused="is_gpu_available", before=is_gpu_available),
    Row("tf.test.gpu_device_name", "limit 1GiB", refused="not enforce it", before=gpu_device_name),
    Row("a context that was reset", "limit 1GiB", refused="not enforce it", before=reset_context),
    Row("a GPU with no room for a context", "growth", refused="may hang for good", neighbour="7.8GiB@0"),
    Row("more than is free", "limit 3GiB", refused="6 GiB  neighbour", neighbour="6GiB@0"),
    Row(
        "equal shares of what is free",
        "split 2 --gpu 0",
        said="No limit is set for GPU 1",
        neighbour="6GiB@0",
        holds=(range(GIB, 2 * GIB), ALL),
    ),
    Row("a GPU that TensorFlow skips", "limit 1GiB", refused="does not use GPU 0", gpus="8GiB:sm=4,8GiB"),
    Row(
        "a GPU that TensorFlow skips, hidden", "visible 1; limit 1GiB", gpus="8GiB:sm=4,8GiB", holds=(0, GIB + CONTEXT)
    ),
]


SMOKE = [pytest.param(row, marks=pytest.mark.smoke) for row in ROWS[:6]]


@pytest.mark.parametrize("row", [*SMOKE, *ROWS[6:]], ids=lambda row: row.trap)
def test_what_tensorflow_would_not_do_is_refused_or_said(row: Row) -> None:
    with Machine.create(row.gpus) as machine:
        if row.neighbour:
            machine.add_neighbour(row.neighbour)
        refused, notes, sizes = run(machine, _apply, row.before, row.words, env=row.env)

    assert (row.refused in refused) if row.refused else not refused, refused
    assert row.said in notes, notes
    assert bool(row.holds) is not bool(row.refused)  # what is not refused has its figures
    for size, expected in zip(sizes, row.holds, strict=True):
        assert size in expected if isinstance(expected, range) else size == expected


def _apply(before: Callable[[], None], words: str) -> tuple[str, str, list[int]]:
    """Tell what the words were refused with; or what was noted, and what is held after the first op."""
    import tensorflow as tf

    before()
    had = held()
    try:
        plan = tfgpu_magic.apply(words)
    except tfgpu_magic.Refused as error:
        assert held() == had, "a refused policy changed what is held"
        return str(error), "", []
    touch_every_gpu()
    assert tf.config.list_logical_devices("CPU"), "the CPU is gone"
    return "", "\n".join(map(str, plan.notes)), held()
