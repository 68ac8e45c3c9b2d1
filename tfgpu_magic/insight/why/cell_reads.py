"""Finds what a cell reads, functions that it calls included, and whether an isolated cell could be sent that.

No code of the user's is run, and nothing is pickled: a type that pickles itself in a way of its own counts as sendable.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as internals

from tfgpu_magic.host import shell
from tfgpu_magic.insight.objects import roots
from tfgpu_magic.isolate.cells.names import names

MOST = 20_000
"""How many objects are looked at: then it is not known whether all can be sent."""

_OWN_WAY = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
"""The methods by which a type pickles itself."""

_SEQUENCES: tuple[type[Any], ...] = (list, tuple, set, frozenset, collections.deque)
_NO_VALUE = ("variant", "resource")
"""The types of TensorFlow's tensors that no other process can have: datasets and iterators are made of them."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What a cell reads.

    Attributes:
        names: the notebook's names, those that its functions read included.
        sendable: whether their values can be sent to another process; None where that is not known.
    """

    names: frozenset[str] = frozenset()
    sendable: bool | None = None


def reads(number: int | None) -> Reads:
    """Return what a cell reads, by its number; nothing is known of what is no cell."""
    history = getattr(getattr(shell(), "history_manager", None), "input_hist_parsed", [])
    if number is None or not 0 < number < len(history):
        return Reads()
    values = roots.names()
    found = set(names(history[number]).reads & values.keys())
    waiting, seen, sendable = [values[name] for name in found], dict[int, object](), True
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        if len(seen) == MOST:
            return Reads(frozenset(found))
        seen[id(thing)] = thing
        try:
            if isinstance(thing, FunctionType) and thing.__module__ == "__main__":
                read = set(internals._extract_code_globals(thing.__code__)) & values.keys()
                found |= read
                waiting += [values[name] for name in read]
            waiting += _parts(thing)
        except Exception:  # it cannot be sent, or a method of its own fails
            sendable = False
    return Reads(frozenset(found), sendable)


def _parts(thing: Any) -> Iterable[Any]:
    """Return what is sent along with an object.

    Raises:
        TypeError: it cannot be sent; any other error is of a method of its own.
    """
    kind = type(thing)
    if isinstance(thing, FunctionType):
        cells = [
            internals._get_cell_contents(cell) for cell in thing.__closure__ or ()
        ]  # an empty one's are a sentinel
        return [*cells, *(thing.__defaults__ or ())] if thing.__module__ == "__main__" else []
    if isinstance(thing, MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, type | ModuleType):
        return list(vars(thing).values()) if isinstance(thing, type) and thing.__module__ == "__main__" else []
    if kind in _SEQUENCES:
        return list(thing)
    if kind is dict:
        return list(thing.values())
    if kind.__name__ == "EagerTensor" and thing.dtype.name in _NO_VALUE:
        raise TypeError(thing.dtype.name)
    if kind in cloudpickle.Pickler.dispatch_table:
        return []
    if any(getattr(kind, name, None) is not getattr(object, name, None) for name in _OWN_WAY):
        return []
    state = object.__reduce_ex__(thing, 5)[2:3]
    return [part for one in state for part in (one if isinstance(one, tuple) else [one])]
