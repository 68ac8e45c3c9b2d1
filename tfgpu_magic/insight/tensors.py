"""What holds this process's memory of the GPUs, by name: `inventory` of all of it, `holders` for the most of it.

Nothing that is found is kept: the results have names, sizes and devices, and no objects. No framework is started, and
no code of the user's is run.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfgpu_magic import frameworks
from tfgpu_magic.config.process_state import Stage
from tfgpu_magic.frameworks import Holder
from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.insight import roots, unnamed
from tfgpu_magic.insight.accounts import Account, Device, Holding, accounts, rested, settled, shared
from tfgpu_magic.insight.names import Name
from tfgpu_magic.insight.walk import Walk

MOST_UNNAMED, WORTH_ASKING = 20, 0.01
"""How many arrays without a name are asked for what holds them, and from which part of all memory on."""

_NAMELESS = Name()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What holds this process's memory of the GPUs at one time.

    Attributes:
        holdings: the arrays, the largest first; none shares memory with another.
        accounts: what each framework has in use on each GPU, and how much of it is found.
        silent: the names of frameworks that use a GPU and do not tell which objects are theirs.
    """

    holdings: tuple[Holding, ...] = ()
    accounts: tuple[Account, ...] = ()
    silent: tuple[str, ...] = ()


def holders(most: int = 5) -> tuple[Holding, ...]:
    """Return the largest arrays of this process on GPUs, with their names; for an error's handler: it raises nothing.

    Args:
        most: how many.
    """
    with contextlib.suppress(Exception):  # the user's own error is what must be seen
        return inventory().holdings[:most]
    return ()


def inventory() -> Inventory:
    """Return what holds this process's memory of the GPUs; under a second for 50,000 arrays.

    Code of the user's that runs in other threads meanwhile may make arrays that are missed.
    """
    with _without_collections():
        telling, silent = _awake()
        arrays, in_use = _arrays(telling), figures(telling)
        named = _named(arrays)
        _name_the_rest(arrays, named)
    found = [
        Holding(
            name=name,
            others=others,
            framework=framework,
            device=one.device,
            what=one.what,
            dtype=one.dtype,
            shape=one.shape,
            size=one.size,
            address=one.address,
            rest=one.rest,
            key=id(one.thing),
        )
        for (framework, one), (name, others) in zip(arrays, named, strict=True)
    ]
    del arrays
    alone = rested(settled(shared(found), in_use), in_use)
    largest_first = sorted(alone, key=lambda one: (-one.size, one.name.expression))
    return Inventory(holdings=tuple(largest_first), accounts=tuple(accounts(alone, in_use)), silent=silent)


def _awake() -> tuple[list[Holder], tuple[str, ...]]:
    """Return the frameworks that use a GPU and tell what their arrays are, and the names of those that do not tell."""
    ready = [one for one in frameworks.FRAMEWORKS if one.stage() is Stage.READY]
    silent = tuple(one.name for one in ready if not isinstance(one, Holder))
    return [one for one in ready if isinstance(one, Holder)], silent


def _arrays(telling: Sequence[Holder]) -> list[tuple[str, Array]]:
    """Return every array on a GPU with its framework's name. One framework that fails has none."""
    found: list[tuple[str, Array]] = []
    objects = gc.get_objects() if telling else []
    for framework in telling:
        with contextlib.suppress(Exception):  # their errors have no common root
            found += [(framework.name, one) for one in framework.arrays(objects)]
    return found


def figures(telling: Sequence[Holder] | None = None) -> dict[Device, int]:
    """Return the bytes that frameworks have in use on each GPU, by default all that tell; none of one that fails."""
    found: dict[Device, int] = {}
    for framework in _awake()[0] if telling is None else telling:
        with contextlib.suppress(Exception):  # as above
            found |= {(framework.name, device): size for device, size in framework.in_use().items()}
    return found


def _named(arrays: list[tuple[str, Array]]) -> list[tuple[Name, tuple[Name, ...]]]:
    """Sort arrays so that those with the best names come first, and return their names; empty where none leads."""
    walk = Walk({id(one.thing) for _, one in arrays}, [arrays, *roots.closed()])
    walk.start(roots.named())
    walk.run(to_the_end=False)
    walk.start(roots.kept())
    walk.run(to_the_end=True)
    for more in (lambda: roots.running(users=True), roots.modules, lambda: roots.running(users=False)):
        if walk.missing:
            walk.start(more())
            walk.run(to_the_end=False)
    arrays.sort(key=lambda one: walk.place(one[1].thing))
    return [_names(walk, one) for _, one in arrays]


def _names(walk: Walk, array: Array) -> tuple[Name, tuple[Name, ...]]:
    first = walk.name(array.thing)
    if first is None:
        return _NAMELESS, ()
    name, *others = [_with_part(one, array.part) for one in (first, *walk.others(array.thing))]
    return name, tuple(one for one in dict.fromkeys(others) if one.parts and not one.inner and one != name)


def _with_part(name: Name, part: str) -> Name:
    return Name((*name.parts, part), name.scopes, name.inner) if part and name.parts and not name.inner else name


def _name_the_rest(arrays: Sequence[tuple[str, Array]], named: list[tuple[Name, tuple[Name, ...]]]) -> None:
    """Name the largest of the arrays to which no name leads by what holds them."""
    least = sum(one.size for _, one in arrays) * WORTH_ASKING
    places = [place for place, (name, _) in enumerate(named) if name == _NAMELESS and arrays[place][1].size >= least]
    places = sorted(places, key=lambda place: -arrays[place][1].size)[:MOST_UNNAMED]
    if places:
        found = unnamed.names([arrays[place][1].thing for place in places])
        for place in places:
            named[place] = found.get(id(arrays[place][1].thing), _NAMELESS), ()


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Keep Python from collecting garbage meanwhile: that takes longer than all else here."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
