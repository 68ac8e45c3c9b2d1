"""Accounts for the memory that arrays take: what shares memory counts once, and the rest is known as a rest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from tfgpu_magic.insight.names import Name

Device: TypeAlias = "tuple[str, str]"
"""A framework's name, and that of a GPU as the framework has it."""

_SLACK = 2**20
"""Bytes in use that may belong to no array where arrays come to more than is in use."""
_GRAIN = 512
"""Bytes to which allocators round up at most: a view seems to end so much later than the array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """An array on a GPU and what holds it. It holds nothing itself.

    Attributes:
        name: how it is reached; empty where no name leads to it.
        others: other names that lead to it, or to arrays that share its memory.
        framework: the name of its framework.
        device: its GPU, as its framework names it: ``GPU:0``, ``cuda:0``.
        what: ``tensor``, ``variable``, ``array``, ``gradient``.
        dtype: the type of its elements.
        shape: its shape.
        size: bytes that it takes, as its framework's allocator counts them.
        address: where its memory begins; None where that is not known.
        rest: whether its size is not known, and `size` is what is in use on its GPU beyond all others.
        key: the `id` of its Python object, which says nothing any more once that is gone.
    """

    name: Name
    others: tuple[Name, ...] = ()
    framework: str
    device: str
    what: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    address: int | None = None
    rest: bool = False
    key: int

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells it from other arrays for as long as it is there."""
        return (*self.on, self.dtype, self.key) if self.address is None else (*self.on, self.address)

    @property
    def on(self) -> Device:
        """Its framework and its GPU."""
        return self.framework, self.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a framework has in use on a GPU, and how much of it is accounted for.

    Attributes:
        framework: its name.
        device: the GPU, as the framework names it.
        in_use: bytes by the framework's own figure; None where it has none.
        found: bytes of the arrays that were found.
    """

    framework: str
    device: str
    in_use: int | None
    found: int

    @property
    def unaccounted(self) -> int | None:
        """Bytes in use that no array of Python's takes; None where the framework has no figure."""
        return None if self.in_use is None else max(self.in_use - self.found, 0)


def shared(holdings: Iterable[Holding]) -> list[Holding]:
    """Return holdings of which none shares memory with another: views join the array that they are views of.

    Args:
        holdings: the arrays, those with the best names first.
    """
    alone: list[Holding] = []
    placed: list[Holding] = []
    for one in holdings:
        (alone if one.address is None else placed).append(one)
    # The larger of two at the same address is the array, and the other a view of it; of equal ones the first is.
    placed.sort(key=lambda one: (one.on, one.address, -one.size))
    for _, there in groupby(placed, key=lambda one: one.on):
        alone += _joined(list(there))
    return alone


def _joined(there: Sequence[Holding]) -> list[Holding]:
    """Join arrays of one GPU that overlap, in the order of their addresses."""
    found: list[Holding] = []
    for one in there:
        last = found[-1] if found else None
        if last is None or one.address is None or last.address is None or one.address >= last.address + last.size:
            found.append(one)
        else:
            more = one.address + one.size - (last.address + last.size)
            found[-1] = _with(replace(last, size=last.size + more if more >= _GRAIN else last.size), one)
    return found


def _with(holding: Holding, view: Holding) -> Holding:
    """Return an array with the names of a view of it."""
    names = [name for name in (view.name, *view.others) if name.parts and name != holding.name]
    if not holding.name.parts and names:
        return replace(holding, name=names[0], others=(*names[1:], *holding.others))
    return replace(holding, others=(*holding.others, *(name for name in names if name not in holding.others)))


def settled(holdings: Iterable[Holding], in_use: Mapping[Device, int]) -> list[Holding]:
    """Return holdings of which none is the value of a variable that is there, too.

    A tensor may have the memory of a variable: the one that it was made of, or one that was read from it. A variable
    does not tell where its memory is; but where the arrays of a GPU come to more than is in use there, some of them
    must share, and only these can.

    Args:
        holdings: arrays that share no memory as far as addresses tell.
        in_use: bytes in use by each framework's own figure.
    """
    left: dict[int, Holding] = dict(enumerate(sorted(holdings, key=lambda one: -one.size)))
    excess = {device: -size for device, size in in_use.items()}
    variables: dict[tuple[Device, str, int], list[int]] = {}
    for place, one in left.items():
        if one.on in excess:
            excess[one.on] += one.size
        if one.what == "variable":
            variables.setdefault((one.on, one.dtype, one.size), []).append(place)
    for place, one in list(left.items()):
        like = variables.get((one.on, one.dtype, one.size), [])
        if one.what != "variable" and like and excess.get(one.on, 0) > max(one.size - _SLACK, 0):
            variable = like.pop(0)
            left[variable] = _with(left[variable], left.pop(place))
            excess[one.on] -= one.size
    return list(left.values())


def rested(holdings: Iterable[Holding], in_use: Mapping[Device, int]) -> list[Holding]:
    """Return holdings with sizes for those that have none of their own: on each GPU they take what is left.

    Args:
        holdings: all others, and those.
        in_use: bytes in use by each framework's own figure.
    """
    left, unsized = list[Holding](), dict[Device, list[Holding]]()
    for one in holdings:
        (unsized.setdefault(one.on, []) if one.rest else left).append(one)
    for device, (first, *more) in unsized.items():
        size = in_use.get(device, 0) - sum(one.size for one in left if one.on == device)
        if size > 0:
            others = (name for one in more for name in (one.name, *one.others) if name.parts)
            left.append(replace(first, size=size, others=(*first.others, *others)))
    return left


def accounts(holdings: Iterable[Holding], in_use: Mapping[Device, int]) -> list[Account]:
    """Return the account of each framework on each GPU of which it has something."""
    found: dict[Device, int] = {}
    for one in holdings:
        found[one.on] = found.get(one.on, 0) + one.size
    return [
        Account(framework=device[0], device=device[1], in_use=in_use.get(device), found=found.get(device, 0))
        for device in sorted({*found, *(device for device, size in in_use.items() if size)})
    ]
