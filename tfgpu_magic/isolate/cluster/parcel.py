"""What travels between a caller and a Dask worker: bytes, which nobody on the way makes objects of.

Dask pickles the list of a call's parts and leaves the large ones alone; the scheduler, which reads the task, needs
neither this package nor the caller's modules. What the parts mean, `cluster` and `remote` know.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfgpu_magic.isolate.terms import Terms
from tfgpu_magic.isolate.values.pickling import APART

GPU = "GPU"
"""The resource of Dask workers that calls need."""

ABSENT, OTHER, LOST, ANSWERED, RAISED = "absent", "other version", "lost", "answered", "raised"
"""How a task ends, the first part of what it gives. Those but for the last two have a text and the machine's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What a Dask worker is told of a call.

    Attributes:
        key: the task's key, which no other call has.
        topic: where its output is to be told.
        name: what people call its function.
        terms: what is asked for it.
        imported: which of `guard.ROOTS` the caller has imported.
    """

    key: str
    topic: str
    name: str
    terms: Terms
    imported: frozenset[str]


def packed(part: memoryview) -> Any:
    """A part as Dask takes it along: a large one as an array, which is not copied where NumPy is."""
    if part.nbytes < APART or importlib.util.find_spec("numpy") is None:
        return bytes(part)
    import numpy as np

    return np.frombuffer(part, np.uint8)


def unpacked(part: Any) -> memoryview:
    """The part's memory, which can be written as what had been packed could."""
    memory = memoryview(part).cast("B")
    return memoryview(bytearray(memory)) if memory.readonly else memory


def task() -> Callable[..., list[Any]]:
    """The function that Dask runs; a new one each time, because Dask sends by value what cannot be imported."""

    def call(version: str, errand: bytes, *work: Any) -> list[Any]:
        import socket
        import sys

        where = f"{socket.gethostname()} ({sys.executable})"
        try:
            import tfgpu_magic
            from tfgpu_magic.isolate.cluster import remote
        except ImportError as error:
            return ["absent", where, str(error)]
        if tfgpu_magic.__version__ != version:
            return ["other version", where, tfgpu_magic.__version__]
        return remote.run(errand, work)

    return call
