"""A walk over Python's objects, from the roots that keep them alive to those that are looked for.

It goes breadth first, so that the shortest path gives the name, and downwards only: to ask for what refers to an object
takes Python a pass over all objects each time. It runs no code of the objects that it passes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tfgpu_magic.insight.objects.names import NOWHERE, Step
from tfgpu_magic.insight.objects.references import LEAVES, Child, Labels, children_of

MOST = 2_000_000
"""Objects that are passed at most, some seconds' worth."""

MOST_NAMES = 4
"""Other paths to an object that are remembered."""

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
        wrappers: the ids of classes whose objects wrap what they have: a path to one is a path to that.
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
        self._roots: dict[int, Step] = {}
        """The step to each root, by its place."""
        self._again: dict[int, list[tuple[int, Step | None]]] = {}
        """Other ways to objects, by the ids of these: the place of what leads there, or the step to a root."""
        self._next = 0
        self._kinds: dict[int, Callable[[Any], Iterable[Child]] | None] = {}
        self._labels = Labels()

    def start(self, roots: Iterable[Child]) -> None:
        """Begin, or go on, from objects that are alive by themselves, each with the step to it."""
        for step, thing in roots:
            if id(thing) in self._place:
                self._reach_again(id(thing), NOWHERE, step)
            else:
                self._roots[len(self._things)] = step or Step()
                self._reach([thing], NOWHERE)

    def run(self, *, to_the_end: bool) -> None:
        """Walk on until nothing is left, or until all that is wanted is found, and what is left then is not passed."""
        while self._next < len(self._things) < MOST and (to_the_end or self.missing):
            self._pass(self._next)
            self._next += 1
        self.gave_up |= self._next < len(self._things) and len(self._things) >= MOST and bool(self.missing)
        self._next = len(self._things)

    def place(self, thing: object) -> int:
        """Return the place of an object, in the order in which they were reached, or `NOWHERE` of one that was not."""
        return max(self._place.get(id(thing), NOWHERE), NOWHERE)

    def chain(self, place: int) -> list[int]:
        """Return a place, and those of the objects that lead there, up to the root; none for `NOWHERE`."""
        chain: list[int] = []
        while place != NOWHERE:
            chain.append(place)
            place = self._parents[place]
        return chain

    def path(self, place: int) -> list[Step]:
        """Return the steps of the first path to the object at a place, which is empty for `NOWHERE`."""
        places = reversed(self.chain(place))
        return [self._step(self._parents[one], self._roots.get(one), self._things[one]) for one in places]

    def other_paths(self, place: int) -> list[list[Step]]:
        """Return other paths to an object, those by other names of what is on the first one included."""
        found: list[list[Step]] = []
        below: list[Step] = []
        while place != NOWHERE and self._again:
            thing = self._things[place]
            for before, step in self._again.get(id(thing), ()):
                found.append([*self.path(before), self._step(before, step, thing), *below])
            below.insert(0, self._step(self._parents[place], self._roots.get(place), thing))
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
        self._reach(gc.get_referents(thing) if children is None else (one for _, one in children(thing)), place)

    def _reach(self, things: Iterable[object], place: int) -> None:
        """Reach what an object refers to, of which there may be very much."""
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

    def _reach_again(self, key: int, place: int, step: Step | None) -> None:
        again = self._again.setdefault(key, [])
        if len(again) < MOST_NAMES and self._place[key] != _CLOSED:
            again.append((place, step))

    def _step(self, place: int, root: Step | None, thing: object) -> Step:
        if place == NOWHERE:
            return root or Step()
        before = self._parents[place]
        return self._labels.step(self._things[before] if before != NOWHERE else None, self._things[place], thing)


def _is_plain(thing: object) -> bool:
    """Return whether a container holds nothing but leaves. One that is not tracked may hold NumPy's arrays, too."""
    return not gc.is_tracked(thing) and all(id(type(one)) in LEAVES for one in gc.get_referents(thing))
