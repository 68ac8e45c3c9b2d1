"""What the tests run in processes on the simulated machine: each function uses the real TensorFlow there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import tfgpu_magic
from tfgpu_magic.engine.status import status
from tfgpu_magic.simgpu import Machine


def here() -> Machine:
    """Return the machine that this process is on."""
    machine = Machine.current()
    assert machine is not None
    return machine


def held() -> list[int]:
    """Return what the driver accounts to this process, in bytes, GPU by GPU in nvidia-smi's order."""
    return [here().held(pid=os.getpid(), gpu=gpu.index) for gpu in here().gpus()]


def in_use() -> int:
    """Return the bytes that TensorFlow has in use on its first GPU."""
    import tensorflow as tf

    return int(tf.config.experimental.get_memory_info("GPU:0")["current"])


def zeros(size: int, gpu: int = 0) -> Any:
    """Return a tensor of so many bytes on a logical GPU."""
    import tensorflow as tf

    with tf.device(f"GPU:{gpu}"):
        return tf.zeros(size // 4)


def in_a_fork(do: Callable[[], str]) -> str:
    """Return what a function returns in a child that is forked from this process."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(theirs, do().encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        return pipe.read()


def touch_every_gpu() -> None:
    """Have TensorFlow allocate on each of its logical GPUs, so that each pool is taken."""
    import tensorflow as tf

    for gpu in tf.config.list_logical_devices("GPU"):
        with tf.device(gpu.name):
            tf.zeros(1000)


def fill(device: str, *, chunk: int = 64 * 2**20) -> int:
    """Allocate on one logical GPU until TensorFlow refuses, and return the bytes that it gave."""
    import tensorflow as tf

    kept: list[Any] = []
    with tf.device(device):
        while True:
            try:
                kept.append(tf.zeros(chunk // 4, tf.float32))
            except tf.errors.ResourceExhaustedError:
                return len(kept) * chunk


def first_op(words: str = "") -> list[int]:
    """Apply the words, use every GPU, and tell what is held of each."""
    if words:
        tfgpu_magic.apply(words)
    touch_every_gpu()
    return held()


def refused(words: str, frameworks: Literal["tensorflow", "all"] = "tensorflow") -> str:
    """Return what the words are refused with; "" where they are not."""
    try:
        tfgpu_magic.apply(words, frameworks=frameworks)
    except tfgpu_magic.Refused as error:
        return str(error)
    return ""


def status_text(words: str = "") -> str:
    """Return the status as text, after the words and a first op."""
    if words:
        first_op(words)
    return repr(status())
