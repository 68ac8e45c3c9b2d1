"""The data sent between a caller and a Dask worker: bytes, which neither Dask nor its scheduler unpickles.

Dask pickles the list of a call's parts and does not copy the large ones; the scheduler, which reads the task, needs
neither this package nor the caller's modules. What the parts mean is left to `backend` and `remote`.
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
"""How a task ends whose versions agree: the first part of its result, before the machine's name and the rest.

The rest is nothing; the worker's address and an exception; a value; an exception. For other tasks see `arrival`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """The request for a call, as it is sent to a Dask worker.

    Attributes:
        key: the task's unique key.
        guard: the name of the call's event, which it keeps when it is tried again on another worker.
        topic: the Dask topic that its output is sent to.
        name: the name of its function for people.
        options: its options.
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
        """Return the request for a call of this process."""
        key = _key(name)
        return cls(key=key, guard=key, topic=topic, name=name, options=options, imported=ROOTS & sys.modules.keys())

    def again(self) -> CallRequest:
        """Return the request under a new key, for another worker."""
        return replace(self, key=_key(self.name))


def _key(name: str) -> str:
    return f"{name}-{uuid.uuid4()}"


def packed(part: memoryview) -> Any:
    """Return a part in the form that Dask sends: if NumPy is installed, a large one as an array without a copy."""
    if part.nbytes < APART or importlib.util.find_spec("numpy") is None:
        return bytes(part)
    import numpy as np

    return np.frombuffer(part, np.uint8)


def unpacked(part: Any) -> memoryview:
    """Return the memory of a part, writable as it was before it was packed."""
    memory = memoryview(part).cast("B")
    return memoryview(bytearray(memory)) if memory.readonly else memory


def versions() -> dict[str, str]:
    """Return the versions that must agree at both ends, as far as they must: those of Python, pickles and arrays."""
    found = {"Python": ".".join(map(str, sys.version_info[:2]))}
    for name in ("cloudpickle", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name).partition(".")[0]
    return {**found, "tfgpu-magic": __version__}
