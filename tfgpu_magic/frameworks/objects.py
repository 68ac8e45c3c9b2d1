"""Looks at Python's objects without running code of theirs: no property, no `__getattr__`, no hash of a class.

Sources: Python's "Data model", and `inspect.getattr_static`, which does the same for one attribute.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from itertools import compress
from types import GetSetDescriptorType, MappingProxyType, MemberDescriptorType
from typing import Any

_mro = type.__dict__["__mro__"].__get__
_dict = type.__dict__["__dict__"].__get__
_name = type.__dict__["__name__"].__get__

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def classes(kind: type) -> tuple[type, ...]:
    """Return a class and its bases, in the order in which attributes are looked up."""
    return _mro(kind)  # type: ignore[no-any-return]


def is_subclass(kind: type, base: type) -> bool:
    """Return whether a class is another one or derived from it; a class may have code of its own for `==`."""
    return any(one is base for one in classes(kind))


def is_a(thing: object, kind: type) -> bool:
    """Return whether an object is of a class; `isinstance` would ask the object, too, what its class is."""
    return is_subclass(type(thing), kind)


def class_name(kind: type) -> str:
    """Return the name of a class."""
    return str(_name(kind))


def class_attributes(kind: type) -> Mapping[str, Any]:
    """Return the attributes of a class itself, without those of its bases."""
    return _dict(kind)  # type: ignore[no-any-return]


def subclasses(base: type) -> list[type]:
    """Return a class and all that are derived from it."""
    found = {id(base): base}  # by their ids: a class may have no hash
    waiting = [base]
    while waiting:
        below: list[type] = type.__subclasses__(waiting.pop())
        more = {id(kind): kind for kind in below if id(kind) not in found}
        found |= more
        waiting += more.values()
    return list(found.values())


def lookup(module: str, name: str) -> Any:
    """Return what a module has by a name; None where it is not imported, or has none."""
    return getattr(sys.modules.get(module), name, None)


def filter_kinds(objects: Sequence[object], kinds: Container[int]) -> Iterator[object]:
    """Return those of very many objects whose classes have one of these ids."""
    return compress(objects, map(kinds.__contains__, map(id, map(type, objects))))


def attributes(thing: object) -> Mapping[str, Any]:
    """Return an object's own attributes, those in slots too; those of its class are left out."""
    found: dict[str, Any] = {}
    for kind in classes(type(thing)):
        for name, member in class_attributes(kind).items():
            if type(member) is MemberDescriptorType and name != "__dict__" and name not in found:
                try:
                    found[name] = member.__get__(thing, type(thing))
                except AttributeError:  # a slot that is empty
                    continue
    own = namespace(thing)
    return found | dict(items(own)) if found else own


def namespace(thing: object) -> Mapping[str, Any]:
    """Return an object's `__dict__` as it is; empty where it has none, or its class makes one up."""
    for kind in classes(type(thing)):
        descriptor = class_attributes(kind).get("__dict__")
        if descriptor is not None:
            own: Any = None
            if type(descriptor) is GetSetDescriptorType or type(descriptor) is MemberDescriptorType:  # no user's code
                with contextlib.suppress(AttributeError):  # a proxy for an object that has none
                    own = descriptor.__get__(thing, type(thing))
            return own if own is not None and is_a(own, dict) else _NOTHING
    return _NOTHING


def items(names: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """Return what a dictionary or a namespace has at one time, while Python collects no garbage.

    Another thread may change it meanwhile; in one call of C no other thread runs, unless an object's end runs code.
    """
    return list(dict.items(names) if is_a(names, dict) else names.items())  # type: ignore[arg-type]  # as `is_a` says


def has_property(kind: type, name: str) -> bool:
    """Return whether a class has a property of that name."""
    for one in classes(kind):
        if name in class_attributes(one):
            return type(class_attributes(one)[name]) is property
    return False


def is_users_class(kind: type) -> bool:
    """Return whether a class is the user's own, and not of Python or of a package that is installed."""
    module = class_attributes(kind).get("__module__")
    return type(module) is str and is_users_module(module)


def is_users_module(name: str) -> bool:
    """Return whether a module is the user's own, by its name."""
    return _is_users_package(name.partition(".")[0])


@cache
def _is_users_package(name: str) -> bool:
    if name == "__main__":
        return True
    if name == __name__.partition(".")[0] or name in sys.stdlib_module_names:
        return False
    file = namespace(sys.modules.get(name)).get("__file__")
    return type(file) is str and not any(folder in file for folder in ("site-packages", "dist-packages"))
