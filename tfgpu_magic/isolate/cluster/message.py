"""What travels between a caller and a Dask worker: bytes, which nobody on the way makes objects of.

Dask pickles the list of a call's parts and leaves the large ones alone; the scheduler, which reads the task, needs
neither this package nor the caller's modules. What the parts mean, `backend` and `remote` know.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import uuid
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tfgpu_magic._version import __version__
from tfgpu_magic.isolate.options import Options
from tfgpu_magic.isolate.values.guard import ROOTS
from tfgpu_magic.isolate.values.pickling import APART

GPU = "GPU"
"""The resource of Dask workers that calls need."""

LOST, FULL, ANSWERED, RAISED = "lost", "full", "answered", "raised"
"""How a task ends that could be understood, the first part of what it gives, before the machine's name and the rest.

The rest is nothing; the worker's address and an exception; a value; an exception. For others see `arrival`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """What a Dask worker is told of a call.

    Attributes:
        key: the task's key, which no other has.
        guard: the call's own name, which it keeps when it is tried again on another worker.
        topic: where its output is to be told.
        name: what people call its function.
        options: what is asked for it.
        imported: which of `guard.ROOTS` the caller has imported.
    """

    key: str
    guard: str
    topic: str
    name: str
    options: Options
    imported: frozenset[str]

    @classmethod
    def of(cls, name: str, options: Options, topic: str) -> CallRequest:
        """What is told of a call of this process."""
        key = _key(name)
        return cls(key=key, guard=key, topic=topic, name=name, options=options, imported=ROOTS & sys.modules.keys())

    def again(self) -> CallRequest:
        """The same for another worker."""
        return replace(self, key=_key(self.name))


def _key(name: str) -> str:
    return f"{name}-{uuid.uuid4()}"


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


def versions() -> dict[str, str]:
    """What must be the same at both ends, as far as it must: how Python, pickles and arrays are written."""
    found = {"Python": ".".join(map(str, sys.version_info[:2]))}
    for name in ("cloudpickle", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name).partition(".")[0]
    return {**found, "tfgpu-magic": __version__}
