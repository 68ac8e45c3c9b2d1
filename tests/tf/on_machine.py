"""What the tests run in processes on the simulated machine: each function uses the real TensorFlow there."""

from __future__ import annotations

import os
from typing import Any

import tfgpu_magic
from tfgpu_magic.engine.status import status
from tfgpu_magic.simgpu import Machine


def held() -> list[int]:
    """Return what the driver accounts to this process, in bytes, GPU by GPU in nvidia-smi's order."""
    machine = Machine.current()
    assert machine is not None
    return [machine.held(pid=os.getpid(), gpu=gpu.index) for gpu in machine.gpus()]


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


def refusal(words: str) -> str:
    """Return what the words are refused with, TensorFlow untouched before and after."""
    try:
        tfgpu_magic.apply(words)
    except tfgpu_magic.Refused as error:
        assert not any(held()), "a refused policy took memory"
        return str(error)
    raise AssertionError(f"{words!r} was not refused")


def refused(words: str) -> str:
    """Return what the words are refused with; "" where they are not."""
    try:
        tfgpu_magic.apply(words)
    except tfgpu_magic.Refused as error:
        return str(error)
    return ""


def status_text(words: str = "") -> str:
    """Return the status as text, after the words and a first op."""
    if words:
        first_op(words)
    return repr(status())
