"""What the tests send between processes, and how: pickled as a call's process does, read as a kernel does."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import cloudpickle

from tests.processes import run
from tfgpu_magic.isolate.values import guard, plain
from tfgpu_magic.simgpu import Machine

Sent: TypeAlias = tuple[bytes, list[bytes]]
"""A stream, and the memory that was pickled apart from it."""


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    def reducer_override(self, obj: Any) -> Any:
        reduced = plain.reduce(obj)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def on_cpu(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function with TensorFlow imported and no GPU for it: the simulated ones' arithmetic gives zeros."""
    with Machine.create("1x8GiB") as machine:
        return run(machine, function, *args, env={"CUDA_VISIBLE_DEVICES": "-1"})


def send(value: object) -> Sent:
    stream, apart = io.BytesIO(), list[pickle.PickleBuffer]()
    Pickler(stream, protocol=5, buffer_callback=apart.append).dump(value)
    return stream.getvalue(), [bytes(buffer.raw()) for buffer in apart]


def receive(sent: Sent) -> Any:
    stream, apart = sent
    return guard.Unpickler(io.BytesIO(stream), buffers=[bytearray(part) for part in apart]).load()


def packages() -> frozenset[str]:
    """Return which of the packages that take the GPU this process has imported."""
    return guard.ROOTS & set(sys.modules)


def is_awake() -> bool:
    """Tell whether TensorFlow, imported here, has made its context, and with it one on every GPU."""
    from tensorflow.python.eager import context

    return bool(context.context()._initialized)


def told(function: Callable[..., object], *args: object) -> str:
    """Return what a function's error says."""
    try:
        function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
