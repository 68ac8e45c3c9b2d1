"""The plain forms of TensorFlow's and Keras' objects, made in the worker process before they are sent.

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
anything else                  `Unpicklable`
=============================  ==================================================
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cloudpickle.cloudpickle import subimport

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.isolate.values.guard import ROOTS
from tfgpu_magic.isolate.values.keras_objects import ModelHandle, TrainingHistory

if TYPE_CHECKING:
    import numpy as np


def reduce(obj: Any) -> Any:
    """Pickle an object of TensorFlow's or Keras' in its plain form: a `pickle.Pickler.reducer_override`.

    Args:
        obj: any object; nothing is imported to examine it.

    Returns:
        What `object.__reduce__` returns, or `NotImplemented` for what is neither TensorFlow's nor Keras'. An array's
        memory is not copied and can be pickled apart from the stream.

    Raises:
        Unpicklable: it has no plain form, or its value cannot be read.
    """
    kind: Any = type(obj)  # mypy takes no type for hashable
    if not _is_tensorflows(kind):
        return NotImplemented
    if isinstance(obj, ModuleType):  # tf.keras, before its first use: by name, as cloudpickle sends other modules
        return subimport, (obj.__name__,)
    name, form = next(((name, form) for name, form in _FORMS if _is_a(obj, name)), ("", None))
    if form is None:
        raise _refused(obj)
    try:
        return _reduced(form(obj))
    except Unpicklable:
        raise
    except Exception as error:  # TensorFlow's own: a deleted variable, a device that is lost
        what = _called(obj, name)
        raise Unpicklable(f"{what} cannot be read to be sent: {error}", what=what) from error


def _refused(obj: Any) -> Unpicklable:
    own = f"{type(obj).__module__}.{type(obj).__qualname__}"
    return Unpicklable(
        f"{own} is an object of TensorFlow's or Keras', and cannot leave the process that made it. "
        "Bring back numpy arrays or plain Python values that are made of it.",
        what=own,
    )


@functools.lru_cache(maxsize=1024)
def _is_tensorflows(kind: type) -> bool:
    """Tell whether instances of a type need a plain form: it or a base is of TensorFlow's or Keras' packages."""
    if issubclass(kind, type | BaseException):  # types are sent by name, and exceptions by `failure`
        return False
    return any(str(base.__module__).partition(".")[0] in ROOTS for base in kind.__mro__)


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
        raise Unpicklable(
            f"{tensor} is symbolic: it has no value outside its function. Return it, and bring that back.",
            what=str(tensor),
        )
    if not len(tensor.shape):
        return tensor.numpy()
    import numpy as np

    array = np.asarray(tensor)
    return array if array.flags.writeable or array.dtype.hasobject else np.asarray(_Writable(array))


class _Writable:
    """A read-only array's memory, declared as writable: a pickled read-only array would stay so where it arrives."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array  # whose memory lives as long as this
        self.__array_interface__ = array.__array_interface__ | {"data": (array.ctypes.data, False)}


def _shape(shape: Any) -> tuple[int | None, ...] | None:
    return None if shape.rank is None else tuple(shape.as_list())


def _dtype(dtype: Any) -> np.dtype[Any]:
    import numpy as np

    plain: np.dtype[Any] = np.dtype(dtype.as_numpy_dtype)
    return plain


def _history(history: Any) -> TrainingHistory:
    return TrainingHistory(dict(history.history), list(history.epoch), dict(history.params))


def _reduced(plain: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    # The buffer protocol has no format for a type that another package has added to numpy: its bits are sent as
    # unsigned integers.
    if getattr(plain, "ndim", 0) and plain.dtype.isbuiltin == 2:
        return _typed, (plain.view(f"u{plain.dtype.itemsize}"), plain.dtype)
    return _same, (plain,)


def _same(plain: Any) -> Any:
    return plain


def _typed(bits: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return bits.view(dtype)


_FORMS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("tensorflow.Tensor", _array),
    ("tensorflow.Variable", lambda variable: _array(variable.read_value())),
    ("keras.Variable", _array),
    ("tensorflow.RaggedTensor", lambda ragged: ragged.to_list()),
    ("tensorflow.TensorShape", _shape),
    ("tensorflow.DType", _dtype),
    ("keras.Model", ModelHandle.of),
    ("keras.callbacks.History", _history),
    ("builtins.list", list),
    ("builtins.dict", dict),
    ("builtins.set", set),
    ("builtins.tuple", tuple),
)
"""The types that have a plain form, by their public names, and the functions that make it."""
