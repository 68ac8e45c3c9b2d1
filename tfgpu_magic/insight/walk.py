"""A walk over Python's objects, from the places that keep them alive to those that are looked for.

It goes breadth first, so that the shortest way gives the name, and downwards only: to ask for what refers to an object
takes Python a pass over all objects each time. It runs no code of the objects that it passes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tfgpu_magic.insight.children import LEAVES, Child, children_of
from tfgpu_magic.insight.labels import Labels
from tfgpu_magic.insight.names import Name, Step, name

MOST = 2_000_000
"""Objects that are passed at most, some seconds' worth."""

MOST_NAMES = 4
"""Other ways to an object that are remembered."""


class Walk:
    """A walk to certain objects, which keeps all objects that it has passed until it is let go.

    Args:
        wanted: the ids of the objects to find; they must stay alive meanwhile.
        closed: objects that are not entered.
    """

    def __init__(self, wanted: Collection[int], closed: Iterable[object] = ()) -> None:
        self.missing = set(wanted)
        self._wanted = frozenset(wanted)
        self._closed = list(closed)  # so that their ids stay theirs
        self._place = dict.fromkeys(map(id, self._closed), -1)
        """The place of each object in the lists below, by its id; -1 of what is closed."""
        self._things: list[object] = []
        self._from: list[int] = []  # the place of what led to it; -1 where the walk began
        self._steps: list[Step | None] = []
        self._again: dict[int, list[tuple[int, Step | None]]] = {}
        self._next = 0
        self._kinds: dict[int, Callable[[Any], Iterable[Child]] | None] = {}
        self._labels = Labels()
        self._ways: dict[int, list[Step]] = {}
        """The steps to objects that lead to others, by their places."""

    def start(self, roots: Iterable[Child]) -> None:
        """Begin, or go on, from objects that are alive by themselves, each with what is written for it."""
        for step, thing in roots:
            self._reach(thing, -1, step)

    def run(self, *, to_the_end: bool) -> None:
        """Walk on until nothing is left; or until all that is wanted is found, and what is left then is not passed."""
        while self._next < len(self._things) < MOST and (to_the_end or self.missing):
            self._pass(self._next)
            self._next += 1
        self._next = len(self._things)

    def place(self, thing: object) -> int:
        """Return when an object was reached, as a number that grows; the greatest of all for one that was not."""
        return self._place.get(id(thing), len(self._things))

    def name(self, thing: object) -> Name | None:
        """Return the name of an object by the first way to it; None where no way was found."""
        place = self._place.get(id(thing), -1)
        return None if place < 0 else name(self._way(place))

    def others(self, thing: object) -> list[Name]:
        """Return other names of an object: of other ways to it, and by other names of what is on the way."""
        found: list[Name] = []
        below: list[Step] = []
        place = self._place.get(id(thing), -1) if self._again else -1
        while place >= 0:
            for before, step in self._again.get(id(self._things[place]), ()):
                again = self._step(before, step, self._things[place])
                found.append(name([*self._way(before), again, *below]))
            below.insert(0, self._step(self._from[place], self._steps[place], self._things[place]))
            place = self._from[place]
        return found[:MOST_NAMES]

    def _pass(self, place: int) -> None:
        thing = self._things[place]
        if id(thing) in self._wanted:
            return  # what an array refers to is its own
        kind = type(thing)
        if id(kind) not in self._kinds:
            self._kinds[id(kind)] = children_of(kind)
        children = self._kinds[id(kind)]
        if children is not None:
            for step, child in children(thing):
                self._reach(child, place, step)
            return
        referents = gc.get_referents(thing)
        if not LEAVES.issuperset(map(id, map(type, referents))):
            for child in referents:
                self._reach(child, place, None)

    def _reach(self, thing: object, place: int, step: Step | None) -> None:
        if id(type(thing)) in LEAVES:
            return
        key = id(thing)
        before = self._place.get(key)
        if before is None:
            self._place[key] = len(self._things)
            self._things.append(thing)
            self._from.append(place)
            self._steps.append(step)
            self.missing.discard(key)
        elif before >= 0 and (place < 0 or key in self._wanted):
            again = self._again.setdefault(key, [])
            if len(again) < MOST_NAMES:
                again.append((place, step))

    def _way(self, place: int) -> list[Step]:
        """Return the steps from the beginning to an object; none to the beginning."""
        back: list[Step] = []
        at = place
        while at >= 0 and at not in self._ways:
            back.append(self._step(self._from[at], self._steps[at], self._things[at]))
            at = self._from[at]
        way = [*self._ways.get(at, ()), *reversed(back)]
        if place >= 0:
            self._ways.setdefault(self._from[place], way[:-1])
        return way

    def _step(self, place: int, step: Step | None, thing: object) -> Step:
        if step is not None or place < 0:
            return step or Step()
        before = self._from[place]
        return self._labels.step(self._things[before] if before >= 0 else None, self._things[place], thing)
