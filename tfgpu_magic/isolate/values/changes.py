"""Which values a cell or a call has changed in its process: the proof is their pickles, from before and after."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from tfgpu_magic.isolate.values import plain
from tfgpu_magic.isolate.values.pickling import SMALL, SharingPickler, SmallStream

_SMALL = 2**14  # numbers in a weight, up to which it is compared: the optimizer's count of steps is one


def digests(values: Mapping[str, object]) -> dict[str, bytes]:
    """Return a digest of what each value consists of, by its name; none of what is too large or cannot be pickled."""
    found = {name: _digest(value) for name, value in values.items() if not name.startswith("_")}
    return {name: digest for name, digest in found.items() if digest}


def changed_names(before: Mapping[str, bytes], values: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the values that are not as they were before; one that pickles otherwise each time is none."""
    found = (name for name in before.keys() & values.keys() if _digest(values[name]) != before[name])
    return tuple(sorted(name for name in found if _digest(values[name]) == _digest(values[name])))


def _digest(value: object) -> bytes:
    """Return a digest, empty for none; of more arrays than are compared, their sizes count."""
    stream, buffers = SmallStream(), list[memoryview]()
    try:
        SharingPickler(stream, buffers, _reduce).dump(value)
    except Exception:  # it is too large; whatever an object's own __reduce__ raises
        return b""
    digest = hashlib.blake2b(stream.getbuffer())
    whole = sum(buffer.nbytes for buffer in buffers) <= SMALL
    for buffer in buffers:
        digest.update(buffer if whole else str(buffer.nbytes).encode())
    return digest.digest()


def _reduce(obj: Any) -> Any:
    """Pickle what has no state of its own by its name, and what pickles by a file of its own by its numbers."""
    if isinstance(obj, type | FunctionType | ModuleType):
        return repr, (f"{getattr(obj, '__module__', '')}.{getattr(obj, '__qualname__', obj.__name__)}",)
    if hasattr(type(obj), "_unpickle_model"):  # Keras' archives have a date
        weights = [*obj.variables, *getattr(getattr(obj, "optimizer", None), "variables", ())]
        return list, ([weight.numpy() for weight in weights if math.prod(weight.shape) <= _SMALL],)
    if (pandas := sys.modules.get("pandas")) is not None and isinstance(obj, pandas.DataFrame):
        return list, ([obj.index, obj.columns, *(obj.iloc[:, at].array for at in range(obj.shape[1]))],)  # no blocks
    return plain.reduce_for_call(obj)
