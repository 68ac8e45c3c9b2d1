"""Pickling between processes: a notebook's definitions go by value, large arrays as memory beside the stream.

Nothing that is unpickled changes a class that is there; and nothing that comes back from a call imports or initializes
TensorFlow.

Source: PEP 574 (out-of-band buffers); cloudpickle.
"""

from __future__ import annotations

import errno
import functools
import inspect
import io
import itertools
import mmap
import pickle
import pickletools
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as internals

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.machine import host_memory

APART = 64 * 2**10
"""Bytes from which a buffer travels apart from the stream, and keeps its own memory."""

SMALL = 4 * 2**20
"""Bytes up to which values are pickled to be examined."""

ROOTS = frozenset({"tensorflow", "keras", "tf_keras"})
"""The packages whose import costs seconds, and whose first operation takes every visible GPU."""

ADVICE = "Make it in the cell, or name with -i what to send."

_MODULE = ("cloudpickle.cloudpickle", "subimport")

_DEPTH = 4  # how many levels of a value are searched for the part that cannot be pickled
_WIDTH = 100  # how many parts of each level are searched


@dataclass(frozen=True, slots=True)
class Pickled:
    """A pickled value.

    Attributes:
        stream: the pickle, protocol 5.
        buffers: the memory of its large arrays, not copied.
    """

    stream: memoryview
    buffers: tuple[memoryview, ...] = ()

    @property
    def parts(self) -> tuple[memoryview, ...]:
        """The memory to be sent, the stream first."""
        return (self.stream, *self.buffers)

    @property
    def size(self) -> int:
        """The number of bytes to be sent."""
        return sum(part.nbytes for part in self.parts)


Reduce = Callable[[Any], Any]
"""A function like `pickle.Pickler.reducer_override`: it returns how to pickle an object, or `NotImplemented`."""


class _Main(dict[str, Any]):
    """A stand-in for the namespace of `__main__`: unpickled, it is that of the receiving process."""

    def __reduce__(self) -> tuple[Callable[[], dict[str, Any]], tuple[()]]:
        return main_namespace, ()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc,unused-ignore]  # cloudpickle has no types
    """A pickler that pickles functions with the globals that they read.

    Attributes:
        lasting: whether only files that outlive this process may stand for what is mapped from them.
    """

    lasting = True

    def __init__(self, file: io.BytesIO, buffers: list[memoryview], reduce: Reduce | None) -> None:
        def keep(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < APART:
                return True  # in the stream
            buffers.append(raw)
            return False

        super().__init__(file, protocol=5, buffer_callback=keep)
        self._reduce = reduce

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _Main):
            return obj.__reduce__()
        if self._reduce is not None and (reduced := self._reduce(obj)) is not NotImplemented:
            return reduced
        if isinstance(obj, BaseException):
            # By its own method: where tblib is installed, TensorFlow has exceptions pickled with their tracebacks.
            return obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        if isinstance(obj, _CachedFunction) and internals._lookup_module_and_qualname(obj) is None:
            return _cached, (obj.cache_parameters(),), obj.__wrapped__, None, None, functools.update_wrapper
        reduced = super().reducer_override(obj)
        return self._array(obj) if reduced is NotImplemented else reduced

    def _array(self, obj: Any) -> Any:
        """Check memory before it is copied: arrays of a subclass or not in one piece, and PyTorch's storages."""
        if (mapped := reduce_by_file(obj, lasting=self.lasting)) is not NotImplemented:
            return mapped
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch.storage")
        if torch is not None and isinstance(obj, torch.TypedStorage | torch.UntypedStorage):
            host_memory.check_room(getattr(obj, "_untyped_storage", obj).nbytes())  # a typed one warns when it is asked
        whole = numpy is None or not isinstance(obj, numpy.ndarray) or (type(obj) is numpy.ndarray and obj.flags.forc)
        if not whole:
            host_memory.check_room(obj.nbytes)
        return NotImplemented


class _Stream(io.BytesIO):
    """The stream of a pickle; it is refused before it takes more memory than is left."""

    _unchecked = 0

    def write(self, data: Any) -> int:
        """Append data.

        Raises:
            OSError: there is no room for it.
        """
        self._unchecked += memoryview(data).nbytes
        if self._unchecked >= host_memory.MARGIN:
            host_memory.check_room(self._unchecked)
            self._unchecked = 0
        return super().write(data)


class SmallStream(io.BytesIO):
    """The stream of a pickle for this process itself; a large one is an `OverflowError`."""

    def write(self, data: Any) -> int:
        """Append data."""
        if self.tell() + memoryview(data).nbytes > SMALL:
            raise OverflowError
        return super().write(data)


class SharingPickler(_Pickler):
    """A pickler that leaves out the globals of the notebook's functions: they use the receiver's `__main__`."""

    lasting = False

    def __init__(self, file: io.BytesIO, buffers: list[memoryview], reduce: Reduce | None) -> None:
        super().__init__(file, buffers, reduce)
        self.globals_ref[id(main_namespace())] = _Main(__name__="__main__")


def reduce_by_file(array: Any, *, lasting: bool = False) -> Any:
    """Pickle an array whose memory is a mapped file by the file, so that what is written to it is in the file.

    A mapping that keeps its changes to itself, and an array of another kind, are pickled as usual.
    So is one in a temporary file or folder of `tempfile`, which its maker may delete at its end, if it has to last.
    Source: joblib's reducers; `numpy.memmap`.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or type(array) not in (numpy.ndarray, numpy.memmap):
        return NotImplemented
    mapped = array
    while isinstance(mapped, numpy.ndarray) and not isinstance(mapped.base, mmap.mmap):
        mapped = mapped.base
    if not isinstance(mapped, numpy.memmap) or not array.nbytes or mapped.mode == "c":
        return NotImplemented
    file = str(mapped.filename or "")
    made = Path(tempfile.gettempdir(), tempfile.gettempprefix())
    if not Path(file).is_file() or (lasting and re.match(rf"{re.escape(str(made))}\w{{8}}", file)):
        return NotImplemented
    steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    before, after = -sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + array.itemsize
    start = mapped.offset + array.ctypes.data - mapped.ctypes.data - before
    mode = "r" if mapped.mode == "r" or not array.flags.writeable else "r+"
    place = file, mode, start, before + after
    return _map, (type(array), place, before, array.shape, array.dtype, array.strides)


def _map(kind: type[Any], place: tuple[str, Any, int, int], first: int, shape: Any, dtype: Any, strides: Any) -> Any:
    """Map a part of a file, as `numpy.memmap` does, with strides of any kind."""
    np: Any = sys.modules["numpy"]  # of which these arguments are
    file, mode, start, size = place
    whole = np.memmap(file, np.uint8, mode, start, (size,))
    part: Any = np.ndarray.__new__(kind, shape, dtype, whole, first, strides)
    if kind is np.memmap:
        vars(part).update(vars(whole))
    return part


_CachedFunction = functools._lru_cache_wrapper


def _cached(parameters: Mapping[str, Any]) -> Any:
    """Return a cached function that calls its `__wrapped__`, which may refer to it, and is set later."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return cached.__wrapped__(*args, **kwargs)

    cached: Any = functools.lru_cache(**parameters)(call)
    return cached


def main_namespace() -> dict[str, Any]:
    """Return the namespace of this process's `__main__`: in a kernel, the notebook's."""
    return vars(sys.modules["__main__"])


def dump(value: object, name: str = "", *, reduce: Reduce | None = None) -> Pickled:
    """Pickle a value for a process whose `__main__` has the globals of the notebook's functions, as a worker's has.

    Args:
        value: what to pickle; its large arrays must not change before they are sent.
        name: its name for people, for the error.
        reduce: a special way to pickle some objects.

    Raises:
        Unpicklable: it cannot be pickled; the error names the part that cannot.
        OSError: there is no room for the pickle.
    """
    return _dumper(SharingPickler, reduce)(name, value)


def dump_each(
    values: Mapping[str, object], *, reduce: Reduce | None = None
) -> tuple[dict[str, Pickled], dict[str, Unpicklable]]:
    """Pickle values as `dump` does, each by itself, for `load_each`; what they share stays shared.

    Returns:
        The pickles, and why others could not be pickled, by name.
    """
    errors = dict[str, Unpicklable]()
    while True:  # once more without all that fail: what they share with others is in their pickles
        pieces, failed, dumped = dict[str, Pickled](), len(errors), _dumper(SharingPickler, reduce)
        for name, value in values.items():
            if name not in errors:
                try:
                    pieces[name] = dumped(name, value)
                except Unpicklable as error:
                    errors[name] = error
        if len(errors) == failed:
            return pieces, errors


def dump_self_contained(value: object, name: str = "", *, reduce: Reduce | None = None) -> Pickled:
    """Pickle a value as `dump` does, with the globals that functions of `__main__` read: a self-contained pickle."""
    return _dumper(_Pickler, reduce)(name, value)


def _dumper(kind: type[_Pickler], reduce: Reduce | None) -> Callable[[str, object], Pickled]:
    """Return what pickles one value after the other, each by its name, with one memo."""
    stream, buffers = _Stream(), list[memoryview]()
    pickler = kind(stream, buffers, reduce)

    def dumped(name: str, value: object) -> Pickled:
        try:
            pickler.dump(value)
            # Not getbuffer(), which must be freed before its stream: Python's garbage collector may turn that round.
            return Pickled(memoryview(stream.getvalue()), tuple(buffers))
        except Exception as error:  # whatever an object's own __reduce__ raises
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise
            raise Unpicklable(_message(value, name or "it", error, reduce), what=name) from error
        finally:
            stream.seek(0)
            stream.truncate()
            buffers.clear()

    return dumped


def dump_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, reduce: Reduce | None = None
) -> Pickled:
    """Pickle a call: the function, its arguments and its keywords together, so that they still share what they share.

    Args:
        function: the function to call.
        args: its positional arguments.
        kwargs: its keyword arguments.
        reduce: a special way to pickle some objects.

    Raises:
        Unpicklable: a part cannot be pickled; the error names it.
    """
    name = name_of(function)
    try:
        return dump((function, args, kwargs), name, reduce=reduce)
    except Unpicklable:
        dump(function, name, reduce=reduce)
        for number, value in enumerate(args, start=1):
            dump(value, f"argument {number} of {name}", reduce=reduce)
        for keyword, value in kwargs.items():
            dump(value, f"argument {keyword!r} of {name}", reduce=reduce)
        raise


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function for people."""
    return str(getattr(function, "__qualname__", "") or f"a {type(function).__qualname__}")


class Unpickler(pickle.Unpickler):
    """An unpickler that leaves unchanged every class that this process has already.

    A class that comes back is the one that was sent. cloudpickle would overwrite all its attributes and methods with
    those of the other process; here only a class that this load makes gets any.
    Source: cloudpickle's `_make_skeleton_class`, `_make_skeleton_enum` and `_class_setstate`.
    """

    def __init__(self, file: io.BytesIO, *, buffers: Iterable[Any] | None = None) -> None:
        super().__init__(file, buffers=buffers)
        self._made: dict[int, type] = {}  # until they are filled; kept, so that no id is used twice

    def load(self) -> Any:
        """Unpickle; where that fails, forget the classes that were made and have no attributes yet."""
        try:
            return super().load()
        except BaseException:
            for kind in self._made.values():
                number = internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.pop(kind, None)
                internals._DYNAMIC_CLASS_TRACKER_BY_ID.pop(number, None)
            raise

    def find_class(self, module: str, name: str) -> Any:
        """Look up a name of the stream; `pickle` invokes this once for each."""
        found = super().find_class(module, name)
        # These hold no `self`: its memo will hold them, and they would keep all that was loaded.
        if module == internals.__name__ and name in ("_make_skeleton_class", "_make_skeleton_enum"):
            return functools.partial(_make, found, self._made)
        if module == internals.__name__ and name == "_class_setstate":
            return functools.partial(_fill, found, self._made)
        return found


def _make(make: Callable[..., type], made: dict[int, type], *description: Any) -> type:
    *_, number, _ = description  # by which cloudpickle recognizes a class that it has sent or made
    known = number in internals._DYNAMIC_CLASS_TRACKER_BY_ID
    kind = make(*description)
    if not known:
        made[id(kind)] = kind
    return kind


def _fill(fill: Callable[..., type], made: dict[int, type], kind: type, state: Any) -> type:
    if id(kind) not in made:
        return kind
    filled = fill(kind, state)
    del made[id(kind)]
    return filled


class GuardedUnpickler(Unpickler):
    """An unpickler for what a worker process sent; it raises where that would import or initialize TensorFlow.

    What a worker process sends contains nothing of TensorFlow's (`plain` replaces it) but names: a function that was
    defined there and uses `tf`, a class whose base is `keras.Model`, an exception. The rule for these names is:

    - Where TensorFlow is not imported, no name of its packages is looked up, and none of them is imported as a module.
    - Where it is, modules and types may be named. A module does nothing; a type does nothing until it is called, and a
      stream from `plain` calls none of TensorFlow's types but exceptions. Anything else that can be named is a
      function, and a function in a pickle is there to be called: it is refused.

    This protects against accidents, not against malice, and covers names only: code that is sent by value has none. A
    module of the user's that imports TensorFlow does so when one of its classes comes back; a `__setstate__` of the
    user's that makes a tensor initializes it; and so does a Keras model that was pickled without `plain`, whose
    constructor is sent as code.
    Source: Python's `pickle`, "Restricting Globals"; cloudpickle's `subimport`, by which it sends modules.

    Args:
        file: the stream.
        buffers: the memory that was pickled apart from it, in order.

    Raises:
        Unpicklable: by `load`; it names the object that it refuses.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Look up a name of the stream; `pickle` invokes this once for each."""
        guarded = _is_guarded(module, f"{module}.{name}")
        found = super().find_class(module, name)
        if (module, name) == _MODULE:
            return functools.partial(_import, found)  # without `self`, whose memo will hold it
        if guarded and not isinstance(found, type):
            text = (
                "{name} is of TensorFlow's or Keras' own functions, and one that comes back could be called and take "
                "the GPU here. Bring back what it returns; or name it by its module in what you bring back, as in "
                "tf.nn.relu."
            )
            raise Unpicklable(msg(text, name=f"{module}.{name}"), what=f"{module}.{name}")
        return found


def _import(subimport: Callable[[str], Any], name: str) -> Any:
    _is_guarded(name, name)
    return subimport(name)


def _is_guarded(module: str, thing: str) -> bool:
    """Return whether a module is of the packages in `ROOTS`; refuse one that would have to be imported."""
    root = module.partition(".")[0]
    if root not in ROOTS:
        return False
    # Importing Keras costs little where TensorFlow is imported, which imports it at its first use.
    if root in sys.modules or "tensorflow" in sys.modules:
        return True
    text = (
        "{thing} would import {package} into a process that has not done so: seconds, and half a GiB of memory. Bring "
        "back numpy arrays or plain Python values; or import it there first, which takes no GPU memory."
    )
    raise Unpicklable(msg(text, thing=thing, package="TensorFlow" if root == "tensorflow" else "Keras"), what=thing)


def load(parts: Sequence[memoryview], unpickler: Callable[..., pickle.Unpickler] = Unpickler) -> Any:
    """Unpickle a value; its large arrays use the memory of the parts."""
    return unpickler(io.BytesIO(parts[0]), buffers=parts[1:]).load()


def load_each(pieces: Mapping[str, Sequence[memoryview]]) -> tuple[dict[str, object], dict[str, Exception]]:
    """Unpickle what `dump_each` has pickled; return the values, and why others could not be made, by name."""
    errors = dict[str, Exception]()
    while True:  # once more without each that fails: what it shares with others may be half made
        streams = [_placeholder(parts[0]) if name in errors else parts[0] for name, parts in pieces.items()]
        buffers = [part for name, parts in pieces.items() if name not in errors for part in parts[1:]]
        unpickler, values = Unpickler(io.BytesIO(b"".join(streams)), buffers=buffers), dict[str, object]()
        for name in pieces:
            references = sys.getrefcount(_MISSING)
            try:
                values[name] = unpickler.load()
                if name not in errors and sys.getrefcount(_MISSING) > references:
                    raise Unpicklable(f"it shares an object with {', '.join(errors)}")  # noqa: TRY301  # as by itself
            except Exception as error:  # a module that is not found here; any error of an object's own __setstate__
                errors[name] = error
                break
        else:
            return {name: value for name, value in values.items() if name not in errors}, errors


_MISSING = object()


def _placeholder(stream: memoryview) -> bytes:
    """Return a pickle that has as many places in the unpickler's memo as another, with `_MISSING` in each."""
    made = sum(code.name == "MEMOIZE" for code, _, _ in pickletools.genops(bytes(stream)))
    return b"\x80\x05c%s\n_MISSING\n%s." % (__name__.encode(), b"\x94" * made)


def _message(value: object, name: str, error: Exception, reduce: Reduce | None) -> Message:
    if isinstance(error, Unpicklable):
        return msg("{name}: {why}", name=name, why=error.message)
    place, part = _culprit(value, name, reduce, _DEPTH)
    what = f"{type(part).__module__}.{type(part).__qualname__}".removeprefix("builtins.")
    text = "{name} cannot be sent to another process: a {what}{inside} cannot be pickled ({error})."
    return msg(text, name=name, what=what, inside="" if place == name else f", in {place},", error=error)


def _culprit(value: object, place: str, reduce: Reduce | None, depth: int) -> tuple[str, object]:
    """Return the name and the object of the smallest part of a value that cannot be pickled."""
    for part, inside in _parts(value) if depth else ():
        try:
            _Pickler(io.BytesIO(), [], reduce).dump(inside)
        except Exception:  # as in `_dump`
            return _culprit(inside, f"{place}{part}", reduce, depth - 1)
    return place, value


def _parts(value: object) -> list[tuple[str, object]]:
    """Return the parts of a value, each with the suffix that names it."""
    inside: Iterable[tuple[str, object]]
    try:
        if isinstance(value, dict):
            inside = ((f"[{key!r}]", part) for key, part in value.items())
        elif isinstance(value, list | tuple):
            inside = ((f"[{index}]", part) for index, part in enumerate(value))
        elif isinstance(value, set | frozenset):
            inside = ((" (an element)", part) for part in value)
        elif isinstance(value, FunctionType):
            read = inspect.getclosurevars(value)
            inside = ((f"'s {name!r}", part) for name, part in {**read.nonlocals, **read.globals}.items())
        else:
            inside = ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())
        return list(itertools.islice(inside, _WIDTH))
    except Exception:  # a type's own items() or __getattr__
        return []
