"""TensorFlow's own containers: for what is an attribute of its modules, and for what its functions are made of.

Source: TensorFlow 2.16 to 2.21, `trackable/data_structures.py`: `ListWrapper` is a list that has its elements in
another one, and the others are proxies of wrapt; `framework/ops.py`.
"""

from __future__ import annotations

import sys

from tfgpu_magic.frameworks.objects import class_attributes, classes, is_subclass, namespace

_MODULE = "tensorflow.python.trackable.data_structures"
_PROXIES = ("_DictWrapper", "_TupleWrapper")
_NODES = "tensorflow.python.framework.ops"


def is_graph_node(kind: type) -> bool:
    """Return whether the objects of a class are a graph's nodes: very many, and what they compute with is captured."""
    module = sys.modules.get(_NODES)
    bases = [getattr(module, name, None) for name in ("Operation", "SymbolicTensor")]
    return any(base is not None and is_subclass(kind, base) for base in bases)


def is_wrapper(kind: type) -> bool:
    """Return whether the objects of a class stand in for lists, dictionaries or tuples of the user's."""
    module = sys.modules.get(_MODULE)
    lists = getattr(module, "List", None)
    return any(kind is getattr(module, name, None) for name in _PROXIES) or (
        lists is not None and is_subclass(kind, lists)
    )


def unwrap(thing: object) -> object:
    """Return the container for which an object stands in; of any other, the object itself."""
    kind = type(thing)
    if not is_wrapper(kind):
        return thing
    proxied = [class_attributes(one)["__wrapped__"] for one in classes(kind) if "__wrapped__" in class_attributes(one)]
    return proxied[0].__get__(thing, kind) if proxied else namespace(thing).get("_storage", thing)
