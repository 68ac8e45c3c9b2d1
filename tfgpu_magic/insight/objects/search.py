"""The search for all arrays on GPUs and the ways to them, which keeps them for as long as they are named.

No framework is started, and no code of the user's is run.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.frameworks.tensorflow import keras
from tfgpu_magic.insight.objects import roots
from tfgpu_magic.insight.objects.accounts import Arrays, Buffer, Device, Group, buffers, merge_overlapping
from tfgpu_magic.insight.objects.names import NOWHERE, Name, NamedMemory, Scope, Step
from tfgpu_magic.insight.objects.references import LEAVES, Child
from tfgpu_magic.insight.objects.walk import MOST_NAMES, Walk
from tfgpu_magic.policy.process_state import Stage

Identity: TypeAlias = "tuple[object, ...]"
"""What tells an array from all others for as long as it is there."""

_NAMELESS, _CAPTURED = Name(), Name((), (Scope("captures"),))


class Search:
    """All arrays of this process on GPUs, and the ways to them.

    Attributes:
        in_use: the bytes that each framework has in use on each GPU, by its own figure.
        silent: the names of frameworks that use a GPU and do not tell which objects are theirs.
        buffers: the memory of the arrays, the largest first; none shares memory with another.
        gave_up: whether there were too many objects to find the ways to all arrays.
    """

    def __init__(self) -> None:
        (arrays, self.silent), self.in_use = _arrays(), bytes_in_use()
        self._walk = _walked(arrays)
        self.gave_up = self._walk.gave_up
        places = [self._walk.place(one.thing) for _, one in arrays]
        reached_first = sorted(range(len(arrays)), key=lambda at: (places[at] == NOWHERE, places[at]))
        self._arrays = [arrays[at] for at in reached_first]
        self._places = [places[at] for at in reached_first]
        self.buffers = sorted(buffers(self._arrays, self.in_use), key=lambda one: (-one.size, one.arrays))

    @property
    def shapes(self) -> frozenset[tuple[int, ...]]:
        """The shapes of all variables."""
        return frozenset(array.shape for _, array in self._arrays if array.what == "variable")

    @property
    def leaves(self) -> list[int]:
        """The place in the tree of the array by which each memory is named; `NOWHERE` if no way leads to it."""
        return [
            next((self._places[one] for one in buffer.arrays if self._places[one] != NOWHERE), NOWHERE)
            for buffer in self.buffers
        ]

    @property
    def parents(self) -> Sequence[int]:
        """The tree of the ways to the arrays: the place of what leads to each object."""
        return self._walk.parents

    def holdings(self, groups: Iterable[Group]) -> Iterator[NamedMemory]:
        """Return the memory of groups, with the names that lead there."""
        for one in groups:
            yield self._alone(one.members[0]) if len(one.members) == 1 else self._together(one)

    def buffers_of(self, identities: set[Identity]) -> list[Buffer]:
        """Return the memory of certain arrays, as far as they are still there."""
        return [
            one for one in self.buffers if any(identity(*self._arrays[array]) in identities for array in one.arrays)
        ]

    def _alone(self, buffer: Buffer) -> NamedMemory:
        array = self._arrays[buffer.arrays[0]][1]
        written = (name for name in self._names(buffer) if name.parts and not name.inner)
        different = dict.fromkeys(islice(written, 1 + MOST_NAMES))  # an array may have very many views
        first, *others = different or [next(self._names(buffer), _CAPTURED if array.captured else _NAMELESS)]
        return NamedMemory(
            name=first,
            others=tuple(others),
            framework=buffer.on[0],
            device=array.device,
            what=array.what,
            dtype=array.dtype,
            shape=array.shape,
            size=buffer.size,
            rest=array.rest,
        )

    def _together(self, group: Group) -> NamedMemory:
        """Return the memory of several arrays by one name."""
        kinds = {self._arrays[one.arrays[0]][1].what for one in group.members}
        framework, device = group.members[0].on
        return NamedMemory(
            name=self._walk.name(group.place),
            framework=framework,
            device=device,
            what=kinds.pop() if len(kinds) == 1 else "array",
            size=group.size,
            count=len(group.members),
            partial=group.partial,
        )

    def _names(self, buffer: Buffer) -> Iterator[Name]:
        """Return the names of the arrays that have a memory, the best of each first; none if no way leads to one."""
        for array in buffer.arrays:
            place, part = self._places[array], self._arrays[array][1].part
            if place != NOWHERE:
                for one in (self._walk.name(place), *self._walk.others(place)):
                    yield Name((*one.parts, part), one.scopes) if part and one.parts and not one.inner else one


def identity(framework: str, array: Array) -> Identity:
    """Return what tells an array from all others."""
    return framework, array.device, id(array.thing) if array.address is None else (array.address,)


def arrays_reached_from(things: Iterable[object]) -> tuple[set[Identity], bool]:
    """Return the identities of the arrays to which objects lead, and whether these were too many to find all."""
    with collection_paused():
        arrays, _ = _arrays()
        return _reached(things, arrays, [arrays, *roots.boundary()])


def ids_leading_to_arrays(things: Iterable[object]) -> set[int]:
    """Return the ids of the objects that lead to an array, each by itself, to which no name of the notebook leads."""
    with collection_paused():
        arrays, _ = _arrays()
        closed = [arrays, *roots.boundary()]
        named, _ = _reached(roots.notebook_names().values(), arrays, closed)
        others = [one for one in arrays if identity(*one) not in named]
        return {id(thing) for thing in things if id(type(thing)) not in LEAVES and _reached([thing], others, closed)[0]}


def bytes_held_alone(name: str, on: Device) -> int:
    """Return the bytes of the arrays on a GPU to which a name of the notebook leads and no other, or 0 if in doubt."""
    with collection_paused():
        arrays, _ = _arrays()
        closed, values = [arrays, *roots.boundary()], roots.notebook_names()
        mine, unsure = _reached([values.pop(name)], arrays, closed)
        others, gave_up = _reached([*values.values(), *(value for _, value in roots.module_roots())], arrays, closed)
        found = merge_overlapping([one for one in arrays if identity(*one) in mine - others])
        return 0 if unsure or gave_up else sum(one.size for one in found if one.on == on)


def extents() -> dict[Device, tuple[int, int]]:
    """Return for each GPU the bytes of its largest array, and those from its first array to the end of its last."""
    with collection_paused():
        arrays, _ = _arrays()
        found: dict[Device, tuple[int, int]] = {}
        for on in {(framework, one.device) for framework, one in arrays}:
            there = [one for framework, one in arrays if (framework, one.device) == on]
            placed = [(one.address, one.address + one.size) for one in there if one.address is not None]
            extent = max(end for _, end in placed) - min(placed)[0] if placed else 0
            found[on] = max(one.size for one in there), extent
        return found


def _reached(things: Iterable[object], arrays: Arrays, closed: Iterable[object]) -> tuple[set[Identity], bool]:
    walk = Walk({id(one.thing) for _, one in arrays}, closed)
    walk.start((Step(), thing) for thing in things)
    walk.run(to_the_end=False)
    return {identity(framework, one) for framework, one in arrays if id(one.thing) not in walk.missing}, walk.gave_up


def bytes_in_use() -> dict[Device, int]:
    """Return the bytes that frameworks have in use on each GPU; none of one that fails."""
    found: dict[Device, int] = {}
    for framework in _ready():
        with contextlib.suppress(Exception):  # their errors have no common root
            found |= {(framework.name, pool.name): pool.in_use for pool in framework.pools()}
    return found


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Keep Python from collecting garbage meanwhile: that takes longer than all else here."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _arrays() -> tuple[list[tuple[str, Array]], tuple[str, ...]]:
    """Return every array on a GPU with its framework's name, and the names of the frameworks that list none.

    One framework that fails has none.
    """
    found, silent = list[tuple[str, Array]](), list[str]()
    ready = _ready()
    objects = gc.get_objects() if ready else []
    for framework in ready:
        with contextlib.suppress(Exception):  # as above
            listed = framework.arrays(objects)
            if listed is None:
                silent.append(framework.name)
            else:
                found += [(framework.name, one) for one in listed]
    return found, tuple(silent)


def _ready() -> list[registry.Framework]:
    """Return the frameworks that use a GPU."""
    return [one for one in registry.FRAMEWORKS if one.stage() is Stage.READY]


def _walked(arrays: list[tuple[str, Array]]) -> Walk:
    """Return a walk to arrays, on which those with the best names are reached first."""
    wrappers = frozenset(map(id, keras.variables()))
    walk = Walk({id(one.thing) for _, one in arrays}, [arrays, *roots.boundary()], wrappers)
    walk.start(roots.named_roots())
    walk.run(to_the_end=False)
    walk.start(roots.kept_roots())
    walk.run(to_the_end=True)
    rest: list[Iterable[Child]] = [
        roots.running_roots(users=True),
        roots.module_roots(),
        roots.running_roots(users=False),
    ]
    for more in rest:
        if walk.missing:
            walk.start(child for child in more if walk.place(child[1]) == NOWHERE)  # what has a name needs no other
            walk.run(to_the_end=False)
    return walk
