"""The plain forms of objects that would take a GPU where they are unpickled, made before they are sent.

Unpickling a tensor makes a tensor again, and with it takes every visible GPU: so arrays are sent in their place. How a
pickle is made and sent is left to `pickling` and `wire`, and exceptions to `failure`.

=============================  ==================================================
tensor, variable               numpy array; what its ``numpy()`` returns
string tensor                  numpy array of `bytes`
bfloat16, float8, int4         numpy array of ml_dtypes' type
RaggedTensor                   nested lists
TensorShape, DType             tuple, `numpy.dtype`
Keras model                    `ModelHandle`
what ``fit`` returns           `TrainingHistory`
tracked list, dict, set        `list`, `dict`, `set`
JAX array                      numpy array; of random keys, their data
PyTorch storage on a GPU       the same in host memory, and so every tensor in it
anything else of TensorFlow's  `Unpicklable`
=============================  ==================================================

Source: `jax.Array.__reduce__` puts the array on a device; PyTorch's `_load_from_bytes` puts a storage where it was.
"""

from __future__ import annotations

import functools
import math
import pickle
import sys
import warnings
from collections.abc import Callable
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cloudpickle.cloudpickle import subimport

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.ground.message import msg
from tfgpu_magic.isolate.values.keras_objects import ModelHandle, TrainingHistory
from tfgpu_magic.isolate.values.pickling import ROOTS
from tfgpu_magic.machine import host_memory

if TYPE_CHECKING:
    import numpy as np


def reduce(obj: Any) -> Any:
    """Pickle an object of TensorFlow's or Keras' in its plain form: a `pickle.Pickler.reducer_override`.

    Args:
        obj: any object; nothing is imported to examine it.

    Returns:
        What `object.__reduce__` returns, or `NotImplemented` for what needs no plain form. The memory of an array of
        TensorFlow's is not copied and can be pickled apart from the stream.

    Raises:
        Unpicklable: it has no plain form, or its value cannot be read.
    """
    kind: Any = type(obj)  # mypy takes no type for hashable
    roots = _roots(kind)
    if not roots:
        return NotImplemented
    known = _FORMS if roots & ROOTS else _HOST_FORMS
    if known is _FORMS and isinstance(obj, ModuleType):  # tf.keras, before its first use: by its name
        return subimport, (obj.__name__,)
    name, form = next(((name, form) for name, form in known if _is_a(obj, name)), ("", None))
    if form is None and known is _HOST_FORMS:
        return NotImplemented
    if form is None:
        own = f"{kind.__module__}.{kind.__qualname__}"
        text = (
            "{type} is an object of TensorFlow's or Keras', and cannot leave the process that made it. Bring back "
            "numpy arrays or plain Python values that are made of it."
        )
        raise Unpicklable(msg(text, type=own), what=own)
    try:
        plain = form(obj)
        return NotImplemented if plain is obj else _reduced(plain)
    except (Unpicklable, OSError):  # no room for it
        raise
    except Exception as error:  # TensorFlow's own: a deleted variable, a device that is lost
        what = _called(obj, name)
        raise Unpicklable(
            msg("{what} cannot be read to be sent: {error}", what=what, error=error), what=what
        ) from error


def reduce_for_call(obj: Any) -> Any:
    """Pickle an object for a call: a Keras model with the classes it is made of, a `tf.function` as if untraced."""
    kind: Any = type(obj)
    if not _roots(kind) & ROOTS:
        return NotImplemented
    if _is_a(obj, "keras.Model") and hasattr(kind, "_unpickle_model"):
        return ModelHandle.load, (ModelHandle.of(obj),)
    if hasattr(obj, "_clone") and hasattr(obj, "python_function"):  # the public type is a protocol
        return obj._clone(None).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    return NotImplemented


def with_weights(obj: Any) -> Any:
    """Pickle an object as `reduce` does; of a Keras model that cannot be saved, what `get_weights()` returns."""
    try:
        return reduce(obj)
    except Unpicklable:
        if not _is_a(obj, "keras.Model"):
            raise
        return list, (obj.get_weights(),)


@functools.lru_cache(maxsize=1024)
def _roots(kind: type) -> frozenset[str]:
    """Return the packages that instances of a type may need a plain form for: it or a base is of theirs."""
    if issubclass(kind, type | BaseException):  # types are sent by name, and exceptions by `failure`
        return frozenset()
    return _PACKAGES.intersection(str(base.__module__).partition(".")[0] for base in kind.__mro__)


def _is_a(obj: object, name: str) -> bool:
    root, _, inside = name.partition(".")
    try:
        return isinstance(obj, attrgetter(inside)(sys.modules[root]))
    except (KeyError, AttributeError):  # not imported, or not in this version
        return False


def _called(obj: object, name: str) -> str:
    public = name.replace("tensorflow.", "tf.")
    own = type(obj)
    return f"A {public}" if own.__module__.partition(".")[0] in ROOTS else f"{own.__qualname__}, a {public},"


def _array(tensor: Any) -> Any:
    """Return what `numpy()` returns, without the copy, to which no code would write."""
    if not hasattr(tensor, "numpy"):
        text = "{tensor} is symbolic: it has no value outside its function. Return it, and bring that back."
        raise Unpicklable(msg(text, tensor=tensor), what=str(tensor))
    return tensor.numpy() if not len(tensor.shape) else _writable(tensor)


def _writable(tensor: Any) -> Any:
    """Return an array's memory, without a copy, as an array that can be written to where it arrives."""
    np: Any = sys.modules["numpy"]  # which TensorFlow, Keras and JAX import
    size = getattr(tensor, "nbytes", None) or math.prod(tensor.shape) * getattr(tensor.dtype, "size", 0)
    host_memory.check_room(size)  # that of a GPU is copied
    array = np.asarray(tensor)
    if array.flags.writeable or array.dtype.hasobject:
        return array
    return np.asarray(_Writable(_bits(array))).view(array.dtype)


def _jax_array(array: Any) -> Any:
    jax: Any = sys.modules["jax"]
    is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
    return _writable(jax.random.key_data(array) if is_key else array)


def _host_storage(storage: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # typed storages are deprecated, and tensors pickled as such
        if storage.device.type in ("cpu", "meta"):
            return storage
        host_memory.check_room(storage.nbytes())
        return storage.cpu()


class _Writable:
    """A read-only array's memory, declared as writable: a pickled read-only array would stay so where it arrives."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array  # whose memory lives as long as this
        self.__array_interface__ = array.__array_interface__ | {"data": (array.ctypes.data, False)}


def _dtype(dtype: Any) -> Any:
    return sys.modules["numpy"].dtype(dtype.as_numpy_dtype)


def _reduced(plain: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    bits = _bits(plain) if getattr(plain, "ndim", 0) else plain
    return (_same, (plain,)) if bits is plain else (type(bits).view, (bits, plain.dtype))


def _bits(array: Any) -> Any:
    """Return an array as unsigned integers if another package has added its type to NumPy.

    Neither the buffer protocol nor NumPy's array interface has a format for such a type.
    """
    return array.view(f"u{array.itemsize}") if array.dtype.isbuiltin == 2 else array


def _same(plain: Any) -> Any:
    return plain


_PACKAGES = ROOTS | {"jax", "jaxlib", "torch"}

_HOST_FORMS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("jax.Array", _jax_array),
    ("torch.TypedStorage", _host_storage),
    ("torch.UntypedStorage", _host_storage),
)
"""The types of frameworks whose other objects are pickled as they pickle themselves."""

_FORMS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("tensorflow.Tensor", _array),
    ("tensorflow.Variable", lambda variable: _array(variable.read_value())),
    ("keras.Variable", _array),
    ("tensorflow.RaggedTensor", lambda ragged: ragged.to_list()),
    ("tensorflow.TensorShape", lambda shape: None if shape.rank is None else tuple(shape.as_list())),
    ("tensorflow.DType", _dtype),
    ("keras.Model", ModelHandle.of),
    ("keras.callbacks.History", lambda one: TrainingHistory(dict(one.history), list(one.epoch), dict(one.params))),
    ("builtins.list", list),
    ("builtins.dict", dict),
    ("builtins.set", set),
    ("builtins.tuple", tuple),
)
"""The types that have a plain form, by their public names, and the functions that make it."""
