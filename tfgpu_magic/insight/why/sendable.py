"""Finds which names a cell would be sent, and whether they can be sent: they are pickled without arrays, for nobody.

No code of the user's is run: what pickles itself in a way of its own, as arrays do, counts as what can be sent.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from cloudpickle import cloudpickle as internals

from tfgpu_magic.isolate.cells.names import global_names
from tfgpu_magic.isolate.values.pickling import SharingPickler, SmallStream

MOST = 20_000
"""How many objects are examined: a trial of more takes too long for an error's handler."""

_OWN_WAY = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
_TAKEN_APART = {
    *(FunctionType, MethodType, CellType, property, classmethod, staticmethod),
    *(functools.partial, functools._lru_cache_wrapper, OrderedDict, defaultdict, deque),
}
"""The types of Python that are pickled with what is in them, though in a way of their own."""


def sendable(source: str, notebook: Mapping[str, object]) -> tuple[frozenset[str], bool | None]:
    """Return the names that a cell reads, those that its functions read included, and whether all can be sent.

    Args:
        source: its text, as `global_names` takes it.
        notebook: the notebook's names and their values.

    Returns:
        Names, more of them in doubt; and None if these have too much for a trial, and may be more.
    """
    examined = itertools.count()
    found, refused = set(global_names(source).reads & notebook.keys()), list[object]()

    def reduce(obj: Any) -> Any:
        kind: Any = type(obj)
        if next(examined) == MOST:
            raise OverflowError
        if kind in _TAKEN_APART or issubclass(kind, type):
            if kind is FunctionType and obj.__module__ == "__main__":
                found.update(notebook.keys() & set(internals._extract_code_globals(obj.__code__)))
            return NotImplemented
        own = kind in SharingPickler.dispatch_table or issubclass(kind, ModuleType)
        own |= any(getattr(kind, name, None) is not getattr(object, name, None) for name in _OWN_WAY)
        if kind.__name__ == "EagerTensor" and obj.dtype.name in ("variant", "resource"):  # of datasets and iterators
            refused.append(kind)
        elif not own:
            try:
                return object.__reduce_ex__(obj, 5)
            except Exception:  # it cannot be pickled
                refused.append(kind)
        inside = inspect.getattr_static(obj, "__wrapped__", None)
        return list, ([inside, kind if kind.__module__ == "__main__" else None],)

    try:
        SharingPickler(SmallStream(), [], reduce).dump([notebook[name] for name in found])
    except OverflowError:
        return frozenset(found), None
    except Exception:  # as above, and no more is known
        return frozenset(notebook), False
    return frozenset(found), not refused
