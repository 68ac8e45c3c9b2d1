"""What is written for the way from an object to one that it refers to: an attribute, a key, an index."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from tfgpu_magic.frameworks.objects import (
    attributes,
    class_attributes,
    class_name,
    classes,
    is_a,
    is_users,
    items,
    namespace,
)
from tfgpu_magic.insight.names import Step

_INNER = Step(inner=True)
_NOTHING = Step()
_WRITABLE = frozenset(map(id, (str, int, float, bool, bytes, type(None))))
"""The ids of the classes of keys that are written as they are."""
_LONGEST = 40
"""Characters of a key."""


class Labels:
    """The labels of the ways from objects; each object's are found once. It keeps no object."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], dict[int, Step]] = {}

    def step(self, owner: object | None, holder: object, held: object) -> Step:
        """Return the step from an object to one that it refers to.

        Args:
            owner: what refers to the first; None where that is not known.
            holder: the first object.
            held: what it refers to.
        """
        key = (id(owner), id(holder))
        if key not in self._known:
            self._known[key] = _from_namespace(owner, holder) or _steps(holder)
        step = self._known[key].get(id(held))
        if step is None:
            return _NOTHING if is_a(holder, type) and is_a(held, dict) else _INNER
        return step


def _from_namespace(owner: object | None, holder: Any) -> dict[int, Step]:
    """Return the steps to the attributes of an object from the dictionary that has them; none from another one."""
    if owner is None or not is_a(holder, dict) or not (namespace(owner) is holder or is_a(owner, type)):
        return {}
    kind: Any = owner if is_a(owner, type) else type(owner)
    return _attributes(holder, hides=not is_users(kind))


def _steps(holder: Any) -> dict[int, Step]:
    """Return the steps to all that an object refers to, by the ids of those."""
    own, hides = attributes(holder), not is_users(type(holder))
    # What an object's class and its dictionary have, it has itself.
    through = {id(namespace(holder)): _NOTHING} | ({} if is_a(holder, type) else {id(type(holder)): _NOTHING})
    return through | _attributes(own, hides=hides) | _elements(holder)


def _elements(holder: Any) -> dict[int, Step]:
    """Return the steps to the elements of a container; those of a set cannot be written."""
    if is_a(holder, dict):
        return _first((value, Step(f"[{written(key)}]")) for key, value in items(holder))
    if is_a(holder, tuple) and (fields := _fields(type(holder))):
        named = zip(fields, tuple.__iter__(holder), strict=False)
        return _first((value, Step(f".{field}")) for field, value in named)
    for kind in (list, tuple, deque):
        if is_a(holder, kind):
            return _first((value, Step(f"[{number}]")) for number, value in enumerate(list(kind.__iter__(holder))))
    return {}


def _attributes(names: Mapping[Any, object], *, hides: bool) -> dict[int, Step]:
    """Return the steps to attributes; those with an underscore are not for users of what somebody else has made."""
    return _first(
        (value, _INNER if hides and name.startswith("_") and not name.endswith("__") else Step(f".{name}"))
        for name, value in items(names)
        if type(name) is str
    )


def _first(steps: Iterable[tuple[object, Step]]) -> dict[int, Step]:
    """Return the first step to each object, one that can be written before one that cannot."""
    found: dict[int, Step] = {}
    for held, step in steps:
        if id(held) not in found or (found[id(held)].inner and not step.inner):
            found[id(held)] = step
    return found


def _fields(kind: type) -> tuple[str, ...]:
    """Return the fields of a named tuple's class; none of another."""
    for one in classes(kind):
        found = class_attributes(one).get("_fields")
        if type(found) is tuple and all(type(field) is str for field in found):
            return found
    return ()


def written(key: object) -> str:
    """Return a key as it is written between brackets; of an object with code of its own, the name of its class."""
    if type(key) is tuple and all(id(type(part)) in _WRITABLE for part in key):
        return ", ".join(map(written, key)) if key else "()"
    if id(type(key)) not in _WRITABLE:
        return f"<{class_name(type(key))}>"
    text = repr(key)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]}...{text[-1]}"
