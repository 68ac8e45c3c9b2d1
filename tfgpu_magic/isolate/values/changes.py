"""Which values a cell or a call has changed in its process: the proof is their pickles, from before and after."""

from __future__ import annotations

import hashlib
import io
import math
import sys
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from tfgpu_magic.isolate.values import plain
from tfgpu_magic.isolate.values.pickling import SharingPickler

LIMIT = 4 * 2**20
"""Bytes up to which a value is compared wholly; of larger ones only the parts beside their large arrays."""

_SMALL = 2**14  # numbers in a weight, up to which it is compared: the optimizer's count of steps is one


def states(values: Mapping[str, object]) -> dict[str, bytes | None]:
    """Return a digest of what each value consists of; None for one that is too large, or cannot be pickled again."""
    return {
        name: _state(value)
        for name, value in values.items()
        if not (name.startswith("_") or type(value) in (str, bytes))  # which nothing changes
    }


def changed(before: Mapping[str, bytes | None], values: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the values that are not as they were before; one that pickles otherwise each time is none."""
    found = (name for name, state in before.items() if state and name in values and _state(values[name]) != state)
    return tuple(sorted(name for name in found if _state(values[name]) == _state(values[name])))


def _state(value: object) -> bytes | None:
    stream, buffers = _Bounded(), list[memoryview]()
    try:
        SharingPickler(stream, buffers, _reduce).dump(value)
    except Exception:  # it is too large; whatever an object's own __reduce__ raises
        return None
    digest = hashlib.blake2b(stream.getbuffer())
    whole = sum(buffer.nbytes for buffer in buffers) <= LIMIT
    for buffer in buffers:
        digest.update(buffer if whole else str(buffer.nbytes).encode())
    return digest.digest()


class _Bounded(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > LIMIT:
            raise OverflowError
        return super().write(data)


def _reduce(obj: Any) -> Any:
    """Pickle what has no state of its own by its name, and what pickles by a file of its own by its numbers."""
    if isinstance(obj, type | FunctionType | ModuleType):
        return repr, (f"{getattr(obj, '__module__', '')}.{getattr(obj, '__qualname__', obj.__name__)}",)
    if hasattr(type(obj), "_unpickle_model"):  # Keras' archives have a date
        weights = [*obj.variables, *getattr(getattr(obj, "optimizer", None), "variables", ())]
        return list, ([weight.numpy() for weight in weights if math.prod(weight.shape) <= _SMALL],)
    if (pandas := sys.modules.get("pandas")) is not None and isinstance(obj, pandas.DataFrame):
        return list, ([obj.index, obj.columns, *(obj.iloc[:, at].array for at in range(obj.shape[1]))],)  # no blocks
    return plain.there(obj)
