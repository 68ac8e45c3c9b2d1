"""The search for all arrays on GPUs and the ways to them, which keeps them for as long as they are named.

No framework is started, and no code of the user's is run.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeAlias

from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.frameworks.tensorflow import keras
from tfgpu_magic.insight.objects import roots
from tfgpu_magic.insight.objects.accounts import (
    Account,
    Arrays,
    Buffer,
    Device,
    Group,
    accounts,
    fold,
    merge_overlapping,
    size_rests,
)
from tfgpu_magic.insight.objects.names import NOWHERE, NamedMemory, Step, make_name
from tfgpu_magic.insight.objects.references import LEAVES, Child
from tfgpu_magic.insight.objects.walk import MOST_NAMES, Walk
from tfgpu_magic.policy.process_state import Stage

Identity: TypeAlias = "tuple[object, ...]"
"""What tells an array from all others for as long as it is there."""

_CAPTURED = NOWHERE - 1
"""The place of a `tf.function` to which no name leads, for all variables that one has captured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The arrays of this process on GPUs, and how they are reached. It keeps none of them.

    Attributes:
        rows: the arrays, the largest first; none shares memory with another.
        accounts: the bytes that each framework has in use on each GPU.
        shapes: the shapes of all variables.
        gave_up: whether there were too many objects to find the paths to all arrays.
    """

    rows: tuple[NamedMemory, ...]
    accounts: tuple[Account, ...]
    shapes: frozenset[tuple[int, ...]]
    gave_up: bool


def search(*, everything: bool = False, only: set[Identity] | None = None) -> Found:
    """Find all arrays on GPUs, and the paths to them. Python collects no garbage meanwhile.

    Args:
        everything: whether each array has a row; otherwise small ones stand together if there are many.
        only: the identities of the arrays that have rows; None for all.
    """
    with collection_paused():
        arrays, in_use = _arrays(), bytes_in_use()
        walk = _walk_to(arrays)
        reached = [walk.place(array.thing) for _, array in arrays]
        order = sorted(range(len(arrays)), key=lambda at: (reached[at] == NOWHERE, reached[at]))
        arrays, places = [arrays[at] for at in order], [reached[at] for at in order]
        buffers = size_rests(merge_overlapping(arrays), arrays, in_use)
        buffers.sort(key=lambda one: (-one.size, one.arrays))
        if everything or only is not None:
            groups = [
                Group((number,))
                for number, one in enumerate(buffers)
                if only is None or any(identity(*arrays[at]) in only for at in one.arrays)
            ]
        else:
            groups = fold(buffers, [_chain(one, arrays, places, walk) for one in buffers])
        return Found(
            rows=tuple(_make_row(one, buffers, arrays, walk) for one in groups),
            accounts=tuple(accounts(buffers, in_use)),
            shapes=frozenset(array.shape for _, array in arrays if array.what == "variable"),
            gave_up=walk.gave_up,
        )


def _make_row(group: Group, buffers: Sequence[Buffer], arrays: Arrays, walk: Walk) -> NamedMemory:
    """Return the row of a group of memory."""
    members = [buffers[at] for at in group.members]
    its = [arrays[at][1] for at in members[0].arrays]
    first, kinds = its[0], {arrays[one.arrays[0]][1].what for one in members}
    alone = len(members) == 1
    paths = _paths(its, walk) if alone else iter([walk.path(group.place)] if group.place >= 0 else [])
    captured = first.captured if alone else group.place == _CAPTURED
    path = next(paths, [Step(within="captured by a tf.function that no name leads to", root="captured")] * captured)
    names = (make_name(one) for one in chain([path], paths))
    written = dict.fromkeys(islice((name for name in names if name.parts and not name.inner), 1 + MOST_NAMES))
    name, *others = written or [make_name(path)]
    return NamedMemory(
        name=name,
        others=tuple(others),
        framework=members[0].on[0],
        device=first.device,
        what=kinds.pop() if len(kinds) == 1 else "array",
        dtype=first.dtype if alone else "",
        shape=first.shape if alone else (),
        size=sum(one.size for one in members),
        count=len(members),
        partial=group.partial and not alone,
        rest=first.rest and alone,
    )


def _chain(buffer: Buffer, arrays: Arrays, places: Sequence[int], walk: Walk) -> list[int]:
    """Return the places on the path to the first array of a memory to which anything leads."""
    place = next((places[at] for at in buffer.arrays if places[at] != NOWHERE), NOWHERE)
    return [_CAPTURED] if place == NOWHERE and arrays[buffer.arrays[0]][1].captured else walk.chain(place)


def _paths(arrays: Sequence[Array], walk: Walk) -> Iterator[list[Step]]:
    """Yield the paths to arrays, the best of each first. An array may have very many views."""
    for array in arrays:
        place, part = walk.place(array.thing), [Step(array.part)] if array.part else []
        if place != NOWHERE:
            yield from ([*path, *part] for path in (walk.path(place), *walk.other_paths(place)))


def identity(framework: str, array: Array) -> Identity:
    """Return what tells an array from all others."""
    return framework, array.device, id(array.thing) if array.address is None else (array.address,)


def arrays_reached_from(things: Iterable[object]) -> tuple[set[Identity], bool]:
    """Return the identities of the arrays to which objects lead, and whether these were too many to find all."""
    with collection_paused():
        arrays = _arrays()
        return _find_reached(things, arrays, [arrays, *roots.boundary()])


def ids_leading_to_arrays(things: Iterable[object]) -> set[int]:
    """Return the ids of the objects that lead to an array, each by itself, to which no name of the notebook leads."""
    with collection_paused():
        arrays = _arrays()
        closed = [arrays, *roots.boundary()]
        named, _ = _find_reached(roots.notebook_names().values(), arrays, closed)
        others = [one for one in arrays if identity(*one) not in named]
        return {
            id(thing) for thing in things if id(type(thing)) not in LEAVES and _find_reached([thing], others, closed)[0]
        }


def bytes_held_alone(name: str, on: Device) -> int:
    """Return the bytes of the arrays on a GPU to which a name of the notebook leads and no other, or 0 if in doubt."""
    with collection_paused():
        arrays = _arrays()
        closed, values = [arrays, *roots.boundary()], roots.notebook_names()
        mine, unsure = _find_reached([values.pop(name)], arrays, closed)
        others, gave_up = _find_reached(
            [*values.values(), *(value for _, value in roots.module_roots())], arrays, closed
        )
        found = merge_overlapping([one for one in arrays if identity(*one) in mine - others])
        return 0 if unsure or gave_up else sum(one.size for one in found if one.on == on)


def extents() -> dict[Device, tuple[int, int]]:
    """Return for each GPU the bytes of its largest array, and those from its first array to the end of its last."""
    with collection_paused():
        arrays = _arrays()
        found: dict[Device, tuple[int, int]] = {}
        for on in {(framework, one.device) for framework, one in arrays}:
            there = [one for framework, one in arrays if (framework, one.device) == on]
            placed = [(one.address, one.address + one.size) for one in there if one.address is not None]
            extent = max(end for _, end in placed) - min(placed)[0] if placed else 0
            found[on] = max(one.size for one in there), extent
        return found


def _find_reached(things: Iterable[object], arrays: Arrays, closed: Iterable[object]) -> tuple[set[Identity], bool]:
    walk = Walk({id(one.thing) for _, one in arrays}, closed)
    walk.start((Step(), thing) for thing in things)
    walk.run(to_the_end=False)
    return {identity(framework, one) for framework, one in arrays if id(one.thing) not in walk.missing}, walk.gave_up


def bytes_in_use() -> dict[Device, int]:
    """Return the bytes that each framework has in use on each GPU. A framework that fails is left out."""
    found: dict[Device, int] = {}
    for framework in _frameworks_in_use():
        with contextlib.suppress(Exception):  # their errors have no common root
            found |= {(framework.name, pool.name): pool.in_use for pool in framework.pools()}
    return found


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's garbage collection, which takes longer than all else here."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _arrays() -> list[tuple[str, Array]]:
    """Return every array on a GPU with its framework's name. A framework that fails has none."""
    ready, found = _frameworks_in_use(), list[tuple[str, Array]]()
    objects = gc.get_objects() if ready else []
    for framework in ready:
        with contextlib.suppress(Exception):  # as above
            found += [(framework.name, one) for one in framework.arrays(objects)]
    return found


def _frameworks_in_use() -> list[registry.Framework]:
    """Return the frameworks that use a GPU."""
    return [one for one in registry.FRAMEWORKS if one.stage() is Stage.READY]


def _walk_to(arrays: list[tuple[str, Array]]) -> Walk:
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
