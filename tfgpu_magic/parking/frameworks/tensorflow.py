"""TensorFlow's variables: the buffer behind a handle is replaced in place, so that whatever refers to it sees nothing.

That gives memory back only if TensorFlow takes it from CUDA's own pools, under `growth --release`. Variables that
share a buffer, as after `b.assign(a)`, leave together and share one again. An eager tensor cannot be replaced, so it
stays, and with it a variable whose buffer it shares.
Source: TensorFlow 2.16 to 2.21, `core/kernels/resource_variable_ops.cc`, `python/data/ops/dataset_ops.py`,
`structured_function.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.frameworks.objects import filter_kinds, is_a, lookup, namespace
from tfgpu_magic.frameworks.tensorflow import arrays, devices
from tfgpu_magic.frameworks.tensorflow.framework import FRAMEWORK
from tfgpu_magic.ground.message import Line, msg
from tfgpu_magic.parking.frameworks import UNREADABLE, Movable, Staying, Survey, message_of

_MULTI_DEVICE = ("tensorflow.python.data.ops.multi_device_iterator_ops", "OwnedMultiDeviceIterator")
_ITERATOR = ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator")
_CALLS_PYTHON = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
"""The operations by which a graph calls Python."""

KEEPS = msg(
    "TensorFlow gives memory back only under `growth --release`. Run `{line}`",
    line=Line("growth --release", restarts=True),
)
CALLS_PYTHON = msg(
    "A tf.data iterator may call Python code at any time, and with it use the GPU. Delete the iterator first (`del` "
    "and its name)."
)
PREFETCHES = msg(
    "A tf.data iterator prefetches to the GPU, and may use it at any time. Delete the iterator first (`del` and its "
    "name)."
)
_ITERATES = msg("a tf.data iterator reads this variable")
_SHARED = msg("an eager tensor shares this memory")
_EAGER = msg("TensorFlow cannot replace it in place")


class Variable:
    """A variable, or several that share a buffer, as a `Movable`."""

    def __init__(self, found: Array, handle: Any, gpu: str) -> None:
        self.name = "variable" if found.captured else str(found.thing.name)  # type: ignore[attr-defined]  # a variable
        self.size, self.gpu = found.size, gpu
        self.handles = [handle]
        self._dtype = found.dtype
        self._host: Any = None

    def copied(self) -> Any:
        """Return a copy of the value in host memory."""
        tf: Any = sys.modules["tensorflow"]
        value = read(self.handles[0], self._dtype)
        with tf.device("CPU:0"):  # an operation there copies what it is given, and lets other threads run meanwhile
            host = tf.raw_ops.Identity(input=value)
        _sync()
        return host

    def take_out(self) -> None:
        """Copy the value to host memory, and put an empty one in its place."""
        self._host = self.copied()
        for handle in self.handles:
            self._assign(handle, _empty(self._dtype))

    def put_back(self) -> None:
        """Put the value back."""
        if self._host is None:
            return
        first, *others = self.handles
        self._assign(first, self._host)
        for handle in others:
            self._assign(handle, read(first, self._dtype))
        _wait()

    def make_unreadable(self) -> None:
        """Refuse every operation on its handles."""
        if not _unreadable:
            calls = sys.modules["tensorflow.python.pywrap_tfe"]
            for name in _CALLS:
                setattr(calls, name, _refusing(getattr(calls, name)))
        _unreadable.update((id(handle), handle) for handle in self.handles)

    def array(self) -> Any:
        """Return the value that is in host memory, which shares that."""
        return self._host._numpy()  # `numpy` copies

    def _assign(self, handle: Any, value: Any) -> None:
        sys.modules["tensorflow"].raw_ops.AssignVariableOp(resource=handle, value=value)  # on the handle's device


def addresses(objects: Sequence[object]) -> list[int]:
    """Return where its tensors and the values of its variables begin."""
    found = arrays.arrays(objects)
    addresses = [_address_of(one) if one.what == "variable" else one.address for one in found]
    return [address for address in addresses if address]


def survey(objects: Sequence[object], foreign: Sequence[int]) -> Survey:  # noqa: ARG001  # they keep theirs
    """Find the variables that can leave."""
    objects = list(filter_kinds(objects, arrays.kinds().keys() | {id(lookup(*_MULTI_DEVICE))}))  # few of very many
    datasets = list(_iterated(objects))
    if any(getattr(dataset, "_is_gpu_target", False) for dataset in datasets) or _alive(_MULTI_DEVICE, objects):
        return Survey(refusals=[PREFETCHES])
    functions = [wrapper.function for dataset in datasets for wrapper in dataset._functions()]
    if any(map(_calls_python, functions)):
        return Survey(refusals=[CALLS_PYTHON])
    pools = FRAMEWORK.pools()
    if not any(pool.releases for pool in pools):
        memory = Staying("TensorFlow's memory", sum(one.in_use for one in pools), KEEPS)
        return Survey(stays=[memory] * bool(pools))  # it may be on the CPU alone
    found = list(arrays.arrays(objects))
    iterated = {
        place
        for function in functions
        for handle in function.captured_inputs
        if (one := arrays.of_handle(handle))
        for place in (_address_of(one), id(handle))
    }
    eager = {one.address for one in found if one.what != "variable"}
    stays = [Staying(_array_name(one), one.size, _EAGER) for one in found if one.what != "variable"]
    gpus = {one.name: uuid for uuid, there in devices.logical().items() for one in there}
    leaves: dict[int, Variable] = {}
    for one in found:
        if one.what != "variable":
            continue
        variable = Variable(one, handle := _handle(one), gpus.get(one.device, ""))
        try:
            address = _address_of(one)
        except Exception as error:  # it has no value, or is of a type that cannot be read there
            stays.append(Staying(variable.name, None, message_of(error)))
            continue
        if {address, id(handle)} & iterated - {None}:
            stays.append(Staying(variable.name, one.size, _ITERATES))
        elif address in eager - {None}:
            stays.append(Staying(variable.name, one.size, _SHARED))
        elif address in leaves:
            leaves[address].handles.append(handle)
        else:
            leaves[address or id(handle)] = variable
    movable: list[Movable] = [*leaves.values()]
    return Survey(movable, stays)


def array(thing: Any, moved: Sequence[Movable]) -> Any:
    """Return a variable's value: of one that a strategy mirrors its first, of one that it sums up on reading each."""
    thing = namespace(thing).get("_value", thing)  # Keras's
    replicas = namespace(thing).get("_values")  # a strategy's
    if replicas is not None:
        summed = lookup("tensorflow.python.distribute.values", "SyncOnReadVariable")
        if summed is not None and is_a(thing, summed):
            return {f"replica {number}": array(one, moved) for number, one in enumerate(replicas)}
        thing = replicas[0]
    kind = lookup("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable")
    if kind is None or not is_a(thing, kind):
        return None
    handle = namespace(thing)["_handle"]
    for one in moved:
        if isinstance(one, Variable) and any(handle is other for other in one.handles):
            return one.array()
    return thing.numpy()


_CALLS = ("TFE_Py_Execute", "TFE_Py_ExecuteCancelable", "TFE_Py_FastPathExecute")
"""The functions of TensorFlow's C module through which all of its eager operations and functions pass."""

_unreadable: dict[int, Any] = {}
"""The handles on which there is no operation any more, by their ids."""


def _refusing(call: Callable[..., Any]) -> Callable[..., Any]:
    def execute(*args: Any) -> Any:
        flat = (one for some in args for one in (some if isinstance(some, (list, tuple)) else (some,)))
        if any(id(getattr(one, "_handle", one)) in _unreadable for one in flat):  # C code reads a variable itself
            raise RuntimeError(str(UNREADABLE))
        return call(*args)

    return execute


def read(handle: Any, dtype: str) -> Any:
    """Return the value behind a handle, on its device; it shares the variable's buffer."""
    tf: Any = sys.modules["tensorflow"]
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(dtype))  # by a name it takes twice as long


@cache
def _empty(dtype: str) -> Any:
    """Return an empty tensor of the CPU."""
    tf: Any = sys.modules["tensorflow"]
    with tf.device("CPU:0"):
        return tf.zeros((0,), dtype)


def _handle(found: Array) -> Any:
    return found.thing if found.captured else vars(found.thing)["_handle"]


def _address_of(found: Array) -> int | None:
    return arrays.address(read(_handle(found), found.dtype))


def _array_name(found: Array) -> str:
    shape = "×".join(map(str, found.shape)) or "one element"
    return f"{found.dtype} {found.what} of {shape}" if found.dtype else found.what


def _alive(place: tuple[str, str], objects: Sequence[object]) -> list[Any]:
    """Return the objects of a class, if its module is imported."""
    kind = lookup(*place)
    return [] if kind is None else list(filter_kinds(objects, frozenset({id(kind)})))


def _iterated(objects: Sequence[object]) -> Iterator[Any]:
    """Yield the datasets that living iterators run through."""
    for iterator in _alive(_ITERATOR, objects):
        waiting = [iterator._dataset]
        while waiting:
            dataset: Any = waiting.pop()
            if dataset is not None:
                yield dataset
                waiting += dataset._inputs()


def _calls_python(function: Any) -> bool:
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
    return any(node.op in _CALLS_PYTHON for node in nodes)


def _sync() -> None:
    """Wait until all that TensorFlow was given to do has been done by its threads."""
    sys.modules[
        "tensorflow.python.eager.context"
    ].context().sync_executors()  # what `async_wait` calls, seven times as fast


def _wait() -> None:
    """Wait until all that TensorFlow was given to do is done, on every GPU."""
    _sync()
    sys.modules["tensorflow"].test.experimental.sync_devices()
