"""What holds objects that no name leads to: for a few of them, since each question passes all of Python's objects.

What refers to them is asked for, then what refers to that, until something is found that says something to people: an
object of some class, a generator, a function.
"""

from __future__ import annotations

import gc
from types import AsyncGeneratorType, CellType, CoroutineType, FrameType, FunctionType, GeneratorType

from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.frameworks.objects import class_name
from tfgpu_magic.frameworks.tensorflow_containers import captures
from tfgpu_magic.insight.children import children_of
from tfgpu_magic.insight.names import Name, Scope, Step, name

_DEPTH = 4
"""Holders that are asked for one after the other; each costs a pass over all objects, some tens of milliseconds."""
_AT_ONCE = 50
"""Objects that are asked for at a time: a pass compares each reference with all of them."""

# By the ids of classes: one of the user's may have code of its own for `==`.
_PLAIN = frozenset(map(id, (CellType, dict, frozenset, list, set, tuple)))
"""Containers, which say little: what holds them is asked for."""

_SUSPENDED = frozenset(map(id, (AsyncGeneratorType, CoroutineType, GeneratorType)))
_OURS = frozenset(map(id, (Array, FrameType)))


def names(things: list[object]) -> dict[int, Name]:
    """Return names that say what holds objects, by their ids; none for one that no object of Python's holds.

    Args:
        things: the objects; the caller has them in no other list.
    """
    found: dict[int, Name] = {}
    leads = {id(thing): {id(thing)} for thing in things}  # what each object at hand leads to
    settled: set[int] = set()
    asked: set[int] = set()
    looked = things
    for _ in range(_DEPTH):
        asked |= set(map(id, looked))
        above: dict[int, set[int]] = {}
        holders = [one for one in gc.get_referrers(*looked) if id(type(one)) not in _OURS and one is not looked]
        for holder in holders:
            plain = id(type(holder)) in _PLAIN
            for held in gc.get_referents(holder):
                new = leads.get(id(held), set()) - settled
                for thing in new if not plain else new - found.keys():
                    found[thing] = name([_step(holder, held)])
                if plain:
                    above[id(holder)] = above.get(id(holder), set()) | new
                else:
                    settled |= new
        leads = {holder: left for holder, all_of in above.items() if (left := all_of - settled)}
        looked = [one for one in holders if id(one) in leads and id(one) not in asked][:_AT_ONCE]
        del holders  # it would count as one of those that hold them
        if not looked:
            break
    return found


def _step(holder: object, held: object) -> Step:
    """Return the step from nowhere to what an object holds."""
    kind = type(holder)
    if type(holder) is FunctionType:
        return Step(scope=Scope("closure", holder.__name__))
    if captures(kind):
        return Step(scope=Scope("captures"))
    children = children_of(kind) if id(kind) in _SUSPENDED else None
    steps = [] if children is None else [step for step, child in children(holder) if child is held and step]
    return steps[0] if steps else Step(scope=Scope("object", class_name(kind)))
