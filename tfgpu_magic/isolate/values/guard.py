"""The guard of unpickling: nothing that comes back from a call may import or initialize TensorFlow here.

What a worker process sends contains nothing of TensorFlow's (`plain` replaces it) but names: a function that was
defined there and uses `tf`, a class whose base is `keras.Model`, an exception. The rule for these names is:

- Where TensorFlow is not imported, no name of its packages is looked up, and none of them is imported as a module.
- Where it is, modules and types may be named. A module does nothing; a type does nothing until it is called, and a
  stream from `plain` calls none of TensorFlow's types but exceptions. Anything else that can be named is a function,
  and a function in a pickle is there to be called: it is refused.

This protects against accidents, not against malice, and covers names only: code that is sent by value has none. A
module of the user's that imports TensorFlow does so when one of its classes comes back; a `__setstate__` of the user's
that makes a tensor initializes it; and so does a Keras model that was pickled without `plain`, whose constructor is
sent as code.
Source: Python's `pickle`, "Restricting Globals"; cloudpickle's `subimport`, by which it sends modules.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.isolate.values import pickling

ROOTS = frozenset({"tensorflow", "keras", "tf_keras"})
"""The packages whose import costs seconds, and whose first operation takes every visible GPU."""

_MODULE = ("cloudpickle.cloudpickle", "subimport")


class Unpickler(pickling.Unpickler):
    """An unpickler for what a worker process sent; it raises where that would import or initialize TensorFlow.

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
            raise Unpicklable(
                f"{module}.{name} is of TensorFlow's or Keras' own functions, and one that comes back could be called "
                "and take the GPU here. Bring back what it returns; or name it by its module in what you bring back, "
                "as in tf.nn.relu.",
                what=f"{module}.{name}",
            )
        return found


def _import(subimport: Callable[[str], Any], name: str) -> Any:
    _is_guarded(name, name)
    return subimport(name)


def _is_guarded(module: str, thing: str) -> bool:
    """Tell whether a module is of the packages in `ROOTS`; refuse one that would have to be imported."""
    root = module.partition(".")[0]
    if root not in ROOTS:
        return False
    # Importing Keras costs little where TensorFlow is imported, which imports it at its first use.
    if root in sys.modules or "tensorflow" in sys.modules:
        return True
    raise Unpicklable(
        f"{thing} would import {'Keras' if root != 'tensorflow' else 'TensorFlow'} into a process that has not "
        "done so: seconds, and half a GiB of memory. Bring back numpy arrays or plain Python values; or import it "
        "there first, which takes no GPU memory.",
        what=thing,
    )
