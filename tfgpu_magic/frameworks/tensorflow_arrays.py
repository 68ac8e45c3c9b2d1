"""TensorFlow's tensors, variables and dataset iterators on GPUs, found by their types; no operation is run for it.

Sources: TensorFlow 2.16 to 2.21, `framework/ops.py`, `ops/resource_variable_ops.py`, `c/eager/dlpack.cc`; its allocator
counts in units of 256 bytes (`common_runtime/bfc_allocator.h`, `kMinAllocationSize`).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from tfgpu_magic.frameworks.array import Array, allocated
from tfgpu_magic.frameworks.objects import attributes, kinds_of, of_kinds

_UNIT = 256
_TENSOR = ("tensorflow.python.framework.ops", "EagerTensor")
_ELSEWHERE = ("resource", "variant", "string")
"""Types whose tensors are handles, or texts in the computer's own memory."""

_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def arrays(objects: Sequence[object]) -> Iterator[Array]:
    """Return the tensors, variables and iterators among objects that have memory of a GPU, each once.

    A variable has no address: to ask for its value may copy it. An iterator does not tell how much it has prefetched.
    """
    tensor = _class(*_TENSOR)
    variable = _class("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable")
    if tensor is None or variable is None:
        return
    # What an assignment returns is the same variable once more.
    again = id(_class("tensorflow.python.ops.resource_variable_ops", "_UnreadVariable"))
    find: dict[int, Callable[[Any], Array | None]] = dict.fromkeys(kinds_of(objects, variable) - {again}, _variable)
    find |= {id(tensor): _tensor, id(_class("tensorflow.python.data.ops.iterator_ops", "OwnedIterator")): _iterator}
    for thing in of_kinds(objects, find):
        found = None
        # Its errors have no common root; one tensor that cannot be asked hides no other.
        with contextlib.suppress(Exception):
            found = find[id(type(thing))](thing)
        if found is not None:
            yield found


def _tensor(tensor: Any) -> Array | None:
    device, dtype = _gpu(tensor.backing_device), tensor.dtype
    if device is None or dtype.name in _ELSEWHERE:
        return None
    return _array(tensor, "tensor", dtype, tensor._shape_tuple(), device, _address(tensor))


def _variable(variable: object) -> Array | None:
    own = attributes(variable)
    device = _gpu(own["_handle"].device) if type(own["_handle"]) is _class(*_TENSOR) else None  # else it is a graph's
    if device is None or own["_dtype"].name in _ELSEWHERE or not own["_shape"].is_fully_defined():
        return None
    return _array(variable, "variable", own["_dtype"], tuple(own["_shape"].as_list()), device, None)


def _iterator(iterator: Any) -> Array | None:
    device = _gpu(iterator._iterator_resource.device)
    if device is None:
        return None
    return Array(thing=iterator, what="dataset iterator", dtype="", shape=(), size=0, device=device, rest=True)


def _array(
    thing: object, what: str, dtype: Any, shape: tuple[int, ...], device: str, address: int | None
) -> Array | None:
    size = math.prod(shape) * dtype.size
    if not size:
        return None
    size = allocated(size, _UNIT)
    return Array(thing=thing, what=what, dtype=dtype.name, shape=shape, size=size, device=device, address=address)


@cache
def _gpu(name: str) -> str | None:
    """Return ``GPU:0`` of a device's full name; None where it is no GPU."""
    found = re.search(r"GPU:\d+$", name)
    return found and found[0]


def _address(tensor: Any) -> int | None:
    """Return where a tensor begins on its GPU; None for a type that DLPack does not know."""
    to_dlpack: Callable[[Any], Any] | None = _class("tensorflow.python.dlpack.dlpack", "to_dlpack")
    if to_dlpack is None:
        return None
    try:
        capsule = to_dlpack(tensor)
    except Exception:  # as above
        return None
    # The first field of DLPack's struct is the address of the data.
    return ctypes.c_void_p.from_address(_pointer(capsule, b"dltensor")).value


def _class(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)
