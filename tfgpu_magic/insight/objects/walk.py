"""A walk over Python's objects, from the places that keep them alive to those that are looked for.

It goes breadth first, so that the shortest way gives the name, and downwards only: to ask for what refers to an object
takes Python a pass over all objects each time. It runs no code of the objects that it passes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tfgpu_magic.insight.objects.names import NOWHERE, Name, Step, make_name
from tfgpu_magic.insight.objects.references import LEAVES, Child, Labels, children_of

MOST = 2_000_000
"""Objects that are passed at most, some seconds' worth."""

MOST_NAMES = 4
"""Other ways to an object that are remembered."""

_PLAIN = frozenset(map(id, (dict, tuple)))
"""The ids of classes whose objects Python does not track if they hold nothing but leaves."""

_CLOSED = -2


class Walk:
    """A walk to certain objects, which keeps all objects that it has passed for as long as it lives.

    Attributes:
        missing: the ids of the objects that are still to be found.
        gave_up: whether there were too many objects to find them.

    Args:
        wanted: the ids of the objects to find; they must stay alive meanwhile.
        closed: objects that are not entered.
        wrappers: the ids of classes whose objects wrap what they have: a way to one is a way to that.
    """

    def __init__(
        self, wanted: Collection[int], closed: Iterable[object] = (), wrappers: frozenset[int] = frozenset()
    ) -> None:
        self.missing = set(wanted)
        self.gave_up = False
        self._wanted = frozenset(wanted)
        self._wrappers = wrappers
        self._closed = list(closed)  # so that their ids stay theirs
        self._place = dict.fromkeys(map(id, self._closed), _CLOSED)
        """The place of each object in the lists below, by its id."""
        self._things: list[object] = []
        self._parents: list[int] = []
        self._steps: dict[int, Step] = {}
        """What is written for the way to an object, by its place; of others, their labels say it."""
        self._again: dict[int, list[tuple[int, Step | None]]] = {}
        """Other ways to objects, by the ids of these: the place of what leads there, and what is written for it."""
        self._next = 0
        self._kinds: dict[int, Callable[[Any], Iterable[Child]] | None] = {}
        self._labels = Labels()

    @property
    def parents(self) -> Sequence[int]:
        """The place of what led to each object that was reached, by its own place, which is greater."""
        return self._parents

    def start(self, roots: Iterable[Child]) -> None:
        """Begin, or go on, from objects that are alive by themselves, each with what is written for it."""
        for step, thing in roots:
            self._reach(thing, NOWHERE, step)

    def run(self, *, to_the_end: bool) -> None:
        """Walk on until nothing is left; or until all that is wanted is found, and what is left then is not passed."""
        while self._next < len(self._things) < MOST and (to_the_end or self.missing):
            self._pass(self._next)
            self._next += 1
        self.gave_up |= self._next < len(self._things) and len(self._things) >= MOST and bool(self.missing)
        self._next = len(self._things)

    def place(self, thing: object) -> int:
        """Return the place of an object, in the order in which they were reached; `NOWHERE` of one that was not."""
        place = self._place.get(id(thing), NOWHERE)
        return place if place != _CLOSED else NOWHERE

    def name(self, place: int) -> Name:
        """Return the name of the object at a place by the first way to it."""
        return make_name(self._way(place))

    def others(self, place: int) -> list[Name]:
        """Return other names of an object: of other ways to it, and by other names of what is on the way."""
        found: list[Name] = []
        below: list[Step] = []
        while place != NOWHERE and self._again:
            thing = self._things[place]
            for before, step in self._again.get(id(thing), ()):
                found.append(make_name([*self._way(before), self._step(before, step, thing), *below]))
            below.insert(0, self._step(self._parents[place], self._steps.get(place), thing))
            place = self._parents[place]
        return found[:MOST_NAMES]

    def _pass(self, place: int) -> None:
        thing = self._things[place]
        if id(thing) in self._wanted:
            return  # what an array refers to is its own
        kind = type(thing)
        if id(kind) not in self._kinds:
            self._kinds[id(kind)] = children_of(kind)
        children = self._kinds[id(kind)]
        if children is None:
            self._reach_all(gc.get_referents(thing), place)
        else:
            for step, child in children(thing):
                self._reach(child, place, step)

    def _reach_all(self, things: list[object], place: int) -> None:
        """Reach what an object refers to, of which there may be very much: `_reach` for each, written out."""
        known, reached, parents, missing = self._place, self._things, self._parents, self.missing
        wanted, wrappers = self._wanted, self._wrappers
        for thing in things:
            kind, key = id(type(thing)), id(thing)
            if kind in LEAVES or (kind in _PLAIN and _is_plain(thing)):
                continue
            if key not in known:
                known[key] = len(reached)
                reached.append(thing)
                parents.append(place)
                missing.discard(key)
            elif key in wanted or kind in wrappers:
                self._reach_again(key, place, None)

    def _reach(self, thing: object, place: int, step: Step | None) -> None:
        kind, key = id(type(thing)), id(thing)
        if kind in LEAVES or (kind in _PLAIN and _is_plain(thing)):
            return
        if key in self._place:
            if place == NOWHERE or key in self._wanted or kind in self._wrappers:
                self._reach_again(key, place, step)
            return
        if step is not None:
            self._steps[len(self._things)] = step
        self._reach_all([thing], place)

    def _reach_again(self, key: int, place: int, step: Step | None) -> None:
        again = self._again.setdefault(key, [])
        if len(again) < MOST_NAMES and self._place[key] != _CLOSED:
            again.append((place, step))

    def _way(self, place: int) -> list[Step]:
        """Return the steps from the beginning to an object; none to the beginning."""
        way: list[Step] = []
        while place != NOWHERE:
            way.append(self._step(self._parents[place], self._steps.get(place), self._things[place]))
            place = self._parents[place]
        way.reverse()
        return way

    def _step(self, place: int, step: Step | None, thing: object) -> Step:
        if step is not None or place == NOWHERE:
            return step or Step()
        before = self._parents[place]
        return self._labels.step(self._things[before] if before != NOWHERE else None, self._things[place], thing)


def _is_plain(thing: object) -> bool:
    """Return whether a container holds nothing but leaves; an untracked one may have NumPy's arrays, too."""
    return not gc.is_tracked(thing) and all(id(type(one)) in LEAVES for one in gc.get_referents(thing))
