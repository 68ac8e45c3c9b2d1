"""The watch over what is unpickled: nothing that comes back may import TensorFlow here, nor wake it.

What a call's process sends has nothing of TensorFlow's in it (`plain` sees to that) but for names: a function that
was defined there and uses `tf`, a class whose base is `keras.Model`, an exception. The rule for names, which is all
that stands in a pickle, is this:

- Where TensorFlow is not imported, no name of its packages is looked up, and none of them is imported as a module.
- Where it is, modules and types may be named. A module does nothing; a type does nothing until it is called, and of
  TensorFlow's types a stream from `plain` calls only exceptions. Anything else that can be named is a function, and
  a function in a pickle is there to be called: it is refused.

This holds against accidents, not against malice, and about names only: code that is sent by value has none. A module of
people's own that imports TensorFlow does so when one of its classes comes back; a `__setstate__` of theirs that makes a
tensor wakes it; and so does a Keras model that was pickled without `plain`, whose way to be made is sent as code.
Source: Python's `pickle`, "Restricting Globals"; cloudpickle's `subimport`, by which it sends modules.
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable, Container, Iterable
from typing import Any

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.isolate.values import pickling

ROOTS = frozenset({"tensorflow", "keras", "tf_keras"})
"""The packages whose import costs seconds, and whose first operation takes every visible GPU."""

_MODULE = ("cloudpickle.cloudpickle", "subimport")


class Unpickler(pickling.Unpickler):
    """Unpickles what a call's process sent, and raises where that would import or wake TensorFlow.

    Args:
        file: the stream.
        buffers: the memory that was pickled apart from it, in order.
        modules: the names of the modules that the process has to whom it goes: our own, or in a trial at the
            sender's the receiver's.

    Raises:
        Unpicklable: by `load`; it names what it met.
    """

    def __init__(
        self,
        file: io.BytesIO,
        *,
        buffers: Iterable[Any] | None = None,
        modules: Container[str] = sys.modules,
    ) -> None:
        super().__init__(file, buffers=buffers)
        self._modules = modules

    def find_class(self, module: str, name: str) -> Any:
        """Look up a name of the stream; pickle calls it once for each."""
        theirs = _is_theirs(self._modules, module, f"{module}.{name}")
        found = super().find_class(module, name)
        if (module, name) == _MODULE:
            return functools.partial(_import, found, self._modules)  # without `self`, which will hold it
        if theirs and not isinstance(found, type):
            raise Unpicklable(
                f"{module}.{name} is of TensorFlow's or Keras' own functions, and one that comes back could be called "
                "and take the GPU here. Bring back what it returns; or name it by its module in what you bring back, "
                "as in tf.nn.relu.",
                what=f"{module}.{name}",
            )
        return found


def _import(bring: Callable[[str], Any], modules: Container[str], name: str) -> Any:
    _is_theirs(modules, name, name)
    return bring(name)


def _is_theirs(modules: Container[str], module: str, thing: str) -> bool:
    root = module.partition(".")[0]
    if root not in ROOTS:
        return False
    # Keras alone costs little where TensorFlow is, which imports it when it is first asked for.
    if root in modules or "tensorflow" in modules:
        return True
    raise Unpicklable(
        f"{thing} would import {'Keras' if root != 'tensorflow' else 'TensorFlow'} into a process that has not "
        "done so: seconds, and half a GiB of memory. Bring back numpy arrays or plain Python values; or import it "
        "there first, which takes no GPU memory.",
        what=thing,
    )
