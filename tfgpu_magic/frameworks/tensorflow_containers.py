"""TensorFlow's stand-ins for lists, dictionaries and tuples that are attributes of its modules and Keras' optimizers.

Source: TensorFlow 2.16 to 2.21, `trackable/data_structures.py`: `ListWrapper` is a list that has its elements in
another one, and the others are proxies of wrapt.
"""

from __future__ import annotations

import sys

from tfgpu_magic.frameworks.objects import class_attributes, classes, derives, namespace

_MODULE = "tensorflow.python.trackable.data_structures"
_PROXIES = ("_DictWrapper", "_TupleWrapper")


def stands_in(kind: type) -> bool:
    """Tell whether the objects of a class stand in for containers."""
    module = sys.modules.get(_MODULE)
    lists = getattr(module, "List", None)
    return any(kind is getattr(module, name, None) for name in _PROXIES) or (lists is not None and derives(kind, lists))


def container(thing: object) -> object:
    """Return the container for which an object stands in; of any other, the object itself."""
    kind = type(thing)
    if not stands_in(kind):
        return thing
    proxied = [class_attributes(one)["__wrapped__"] for one in classes(kind) if "__wrapped__" in class_attributes(one)]
    return proxied[0].__get__(thing, kind) if proxied else namespace(thing).get("_storage", thing)
