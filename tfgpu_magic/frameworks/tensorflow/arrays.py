"""TensorFlow's tensors, variables and dataset iterators on GPUs, found by their types; no operation is run for it.

Sources: TensorFlow 2.16 to 2.21, `framework/ops.py`, `ops/resource_variable_ops.py`, `data/ops/iterator_ops.py`,
`data/ops/prefetch_op.py`, `c/eager/dlpack.cc`; its allocator counts in units of 256 bytes
(`common_runtime/bfc_allocator.h`, `kMinAllocationSize`).
"""

from __future__ import annotations

import ctypes
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from tfgpu_magic.frameworks.array import Array, round_up
from tfgpu_magic.frameworks.objects import filter_kinds, lookup, namespace, subclasses

_UNIT = 256
_TENSOR = ("tensorflow.python.framework.ops", "EagerTensor")
_VARIABLES = "tensorflow.python.ops.resource_variable_ops"
_ITERATOR = ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator")
_PREFETCHING = ("tensorflow.python.data.ops.prefetch_op", "_PrefetchDataset")
_DLPACK = "tensorflow.python.dlpack.dlpack"
_HANDLE = "resource"
_ELSEWHERE = (_HANDLE, "variant", "string")
"""Types whose tensors are handles, or texts in the computer's own memory."""

_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def arrays(objects: Sequence[object]) -> Iterator[Array]:
    """Return the tensors, variables and iterators among objects that have memory of a GPU, each once.

    A variable has no address: to ask for its value may copy it. An iterator does not tell how much it has prefetched.
    The function that has read a variable keeps its handle, and with it the memory, when the variable itself is gone.
    """
    find = kinds()
    things = list(filter_kinds(objects, find))
    handles = {id(namespace(one).get("_handle")) for one in things if find[id(type(one))] is _variable}
    for thing in things:
        if id(thing) in handles:
            continue
        try:  # in each turn, of which there are very many: `contextlib.suppress` takes its time
            found = find[id(type(thing))](thing)
        except Exception:  # its errors have no common root; one tensor that cannot be asked hides no other
            found = None
        if found is not None:
            yield found


def kinds() -> Mapping[int, Callable[[Any], Array | None]]:
    """Return what describes an object of each class that `arrays` finds, by the class's id; none without TensorFlow."""
    tensor, variable = lookup(*_TENSOR), lookup(_VARIABLES, "BaseResourceVariable")
    if tensor is None or variable is None:
        return {}
    find: dict[int, Callable[[Any], Array | None]] = {id(kind): _variable for kind in subclasses(variable)}
    find.pop(id(lookup(_VARIABLES, "_UnreadVariable")), None)  # what an assignment returns: the variable once more
    return find | {id(tensor): _tensor, id(lookup(*_ITERATOR)): _iterator}


def _tensor(tensor: Any) -> Array | None:
    device, number = _gpu(tensor.backing_device), tensor._datatype_enum()
    if device is None:  # a handle is in the computer's own memory
        return of_handle(tensor) if _type(number)[0] == _HANDLE else None
    shape = tensor._shape_tuple()
    name, size = _type_and_size(number, shape)
    return Array(tensor, "tensor", name, shape, size, device, address(tensor)) if size else None


def of_handle(handle: Any) -> Array | None:
    """Return the variable behind a handle; None where it is on no GPU, or the handle is another thing's."""
    device, told = _gpu(handle.device), handle._handle_data
    if device is None or told is None or len(told.shape_and_type) != 1:  # an iterator's or a table's
        return None
    (one,) = told.shape_and_type
    shape = tuple(dimension.size for dimension in one.shape.dim)
    if one.shape.unknown_rank or min(shape, default=0) < 0:
        return None
    found = _value(handle, one.dtype, shape, device)
    return found and found._replace(captured=True)


def _variable(variable: object) -> Array | None:
    own = namespace(variable)
    handle = own["_handle"]
    device = _gpu(handle.device) if type(handle) is lookup(*_TENSOR) else None  # else it is a graph's
    if device is None or not own["_shape"].is_fully_defined():
        return None
    number, shape = own["_dtype"].as_datatype_enum, tuple(own["_shape"].as_list())
    return _value(variable, number, shape, device)


def _value(thing: object, number: int, shape: tuple[int, ...], device: str) -> Array | None:
    name, size = _type_and_size(number, shape)
    return Array(thing, "variable", name, shape, size, device) if size else None


@lru_cache(maxsize=4096)
def _type_and_size(number: int, shape: tuple[int, ...]) -> tuple[str, int]:
    """Return the name of a type, and the bytes of a GPU that an array of it takes."""
    name, of_one = _type(number)
    return name, 0 if name in _ELSEWHERE else round_up(math.prod(shape) * of_one, _UNIT)


@cache
def _type(number: int) -> tuple[str, int]:
    """Return the name of a type by its number, and the bytes of one element; to ask each tensor for them takes long."""
    dtype = lookup("tensorflow.python.framework.dtypes", "as_dtype")(number)
    return dtype.name, dtype.size


def _iterator(iterator: Any) -> Array | None:
    device = _gpu(iterator._iterator_resource.device)
    if device is None:
        return None
    return Array(iterator, "dataset iterator", "", (), _prefetched_at_most(iterator), device, rest=True)


def _prefetched_at_most(iterator: Any) -> int:
    """Return the bytes that a dataset iterator prefetches at most; 0 where that follows from no number of it.

    It prefetches elements, as many as its last datasets say: those that are on a GPU, as it is.
    """
    shapes, types = iterator._flat_output_shapes, iterator._flat_output_types
    if not all(shape.is_fully_defined() for shape in shapes):
        return 0
    sizes = (math.prod(shape.as_list()) * dtype.size for shape, dtype in zip(shapes, types, strict=True))
    element = sum(round_up(size, _UNIT) for size in sizes)
    return element * _elements(getattr(iterator, "_dataset", None))


def _elements(dataset: Any) -> int:
    """Return how many elements datasets on a GPU prefetch; 0 where TensorFlow chooses that."""
    found = 0
    while dataset is not None and _gpu(dataset._variant_tensor.device):
        if type(dataset) is lookup(*_PREFETCHING):
            number = int(dataset._buffer_size)
            if number < 0:
                return 0
            found += number
        dataset = getattr(dataset, "_input_dataset", None)
    return found


@cache
def _gpu(name: str) -> str | None:
    """Return ``GPU:0`` of a device's full name; None where it is no GPU."""
    found = re.search(r"GPU:\d+$", name)
    return found and found[0]


def address(tensor: object) -> int | None:
    """Return where a tensor begins on its GPU; None for a type that DLPack does not know."""
    try:
        capsule = sys.modules[_DLPACK].to_dlpack(tensor)
        # The first field of DLPack's struct is the address of the data.
        return ctypes.c_void_p.from_address(_pointer(capsule, b"dltensor")).value
    except Exception:  # as above
        return None
