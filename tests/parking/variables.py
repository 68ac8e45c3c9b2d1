"""TensorFlow's variables on a simulated machine's GPUs, which are filled from the host: nothing is computed there."""

from __future__ import annotations

import gc
import hashlib
import itertools
import sys
from collections.abc import Callable
from typing import Any

import tfgpu_magic


def handles() -> dict[int, Any]:
    """Return each variable of this process that is on a GPU, by the id of its handle."""
    kinds: Any = sys.modules["tensorflow.python.ops.resource_variable_ops"]
    made = [one for one in gc.get_objects() if issubclass(type(one), kinds.BaseResourceVariable)]
    real = [one for one in made if type(one) is not kinds._UnreadVariable]
    return {id(one.handle): one for one in real if "GPU" in getattr(one.handle, "device", "")}


def fill(*only: Any) -> None:
    """Fill these variables, or all on a GPU, with random bytes of their own."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng()
    for one in only or handles().values():
        count = int(np.prod(one.shape))
        if one.dtype == tf.bool:
            values: Any = random.integers(0, 2, count).astype(bool)
        else:
            size = count * one.dtype.size
            words = random.integers(0, 2**64 - 1, -(size // -8), "u8", endpoint=True)
            values = words.view("u1")[:size].view(one.dtype.as_numpy_dtype)
        with tf.device(one.handle.device):
            tf.raw_ops.AssignVariableOp(resource=one.handle, value=tf.constant(values.reshape(one.shape)))


def content() -> dict[int, bytes]:
    """Return a digest of the bytes of every variable on a GPU."""
    return {number: digest(one.read_value()) for number, one in handles().items()}


def digest(tensor: Any) -> bytes:
    """Return the digest of a tensor's bytes."""
    return hashlib.sha256(tensor.numpy().tobytes()).digest()


def variables(*sizes: int) -> list[Any]:
    """Make filled variables on a GPU, of so many elements, where memory that they leave is given back."""
    import tensorflow as tf

    tfgpu_magic.apply("growth --release")
    made = [tf.Variable(tf.zeros(size), name=f"v{number}") for number, size in enumerate(sizes)]
    fill()
    return made


TWELVE = range(1000, 13_000, 1000)
"""Sizes of small variables, by the elements."""


def failing(real: Callable[..., Any], number: int, why: str) -> Callable[..., Any]:
    """Return a function that does what another one does, but raises an error when it is called for that time."""
    calls = itertools.count()

    def fails(*args: Any) -> Any:
        if next(calls) == number:
            raise RuntimeError(why)
        return real(*args)

    return fails
