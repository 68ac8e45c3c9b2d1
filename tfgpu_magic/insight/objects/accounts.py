"""Accounts for the memory that arrays take. Pure.

What shares memory counts once, what has no array is known as a rest, and of very many arrays those that are small
beside the rest are taken together with their neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.insight.objects.names import NOWHERE

Device: TypeAlias = "tuple[str, str]"
"""A framework's name, and that of a GPU as the framework has it."""

Arrays: TypeAlias = Sequence["tuple[str, Array]"]
"""Arrays, each with its framework's name; those with the best names first. Below, the place in it stands for each."""

_GRAIN = 512
"""Bytes to which allocators round up at most: a view seems to end so much later than the array."""

MOST = 20
"""Rows that are shown if not all are asked for."""


class Buffer(NamedTuple):
    """Memory of a GPU that belongs together, and the arrays that have it.

    Attributes:
        on: its framework and its GPU.
        size: bytes.
        arrays: the places of the arrays: first the array that it was made for, then its views.
    """

    on: Device
    size: int
    arrays: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a framework has in use on a GPU, and how much of it is accounted for.

    Attributes:
        framework: its name.
        device: the GPU, as the framework names it.
        in_use: bytes by the framework's own figure; None if it has none.
        found: bytes of the arrays that were found.
    """

    framework: str
    device: str
    in_use: int | None
    found: int

    @property
    def unaccounted(self) -> int | None:
        """Bytes in use that no array of Python's takes; None if the framework has no figure."""
        return None if self.in_use is None else max(self.in_use - self.found, 0)

    @property
    def excess(self) -> int:
        """Bytes by which the arrays come to more than is in use: some share memory, and do not tell that."""
        return 0 if self.in_use is None else max(self.found - self.in_use, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The memory of one array, or of several to which the same object leads.

    Attributes:
        members: the memory, the largest first.
        place: the place of that object in the tree; `NOWHERE` if they have none in common.
        partial: whether more memory to which that object leads has rows of its own.
    """

    members: tuple[Buffer, ...]
    place: int = NOWHERE
    partial: bool = False

    @property
    def size(self) -> int:
        """Bytes that they take together."""
        return sum(one.size for one in self.members)


def buffers(arrays: Arrays, in_use: Mapping[Device, int]) -> list[Buffer]:
    """Return the memory of arrays.

    Args:
        arrays: the arrays.
        in_use: bytes in use by each framework's own figure.
    """
    return size_rests(merge_overlapping(arrays), arrays, in_use)


def merge_overlapping(arrays: Arrays) -> list[Buffer]:
    """Return the memory of arrays, of which none overlaps with another: views join the array that they are views of."""
    alone: list[Buffer] = []
    placed: dict[Device, list[tuple[int, int, int]]] = {}
    for place, (framework, one) in enumerate(arrays):
        if one.address is None:
            alone.append(Buffer((framework, one.device), one.size, (place,)))
        else:
            # The larger of two at the same address is the array, and the other a view of it; of equal ones the first.
            placed.setdefault((framework, one.device), []).append((one.address, -one.size, place))
    for on, there in placed.items():
        there.sort()
        alone += _join(on, there)
    return alone


def _join(on: Device, there: Iterable[tuple[int, int, int]]) -> Iterator[Buffer]:
    """Join arrays of one GPU that overlap, from their addresses, sizes and places in the order of the addresses."""
    begin = end = 0
    joined: list[int] = []
    for address, minus_size, place in there:
        if joined and address < end:
            beyond = address - minus_size - end
            end += beyond if beyond >= _GRAIN else 0
            joined.append(place)
        else:
            if joined:
                yield Buffer(on, end - begin, tuple(joined))
            begin, end, joined = address, address - minus_size, [place]
    if joined:
        yield Buffer(on, end - begin, tuple(joined))


def size_rests(found: Iterable[Buffer], arrays: Arrays, in_use: Mapping[Device, int]) -> list[Buffer]:
    """Return the memory of arrays, with sizes for those whose own cannot be asked for: they take what is left.

    Args:
        found: the memory of the arrays; of those, the most that each takes, or 0.
        arrays: the arrays.
        in_use: bytes in use by each framework's own figure.
    """
    sized, bounded, boundless = list[Buffer](), list[Buffer](), dict[Device, Buffer]()
    for one in found:
        if not arrays[one.arrays[0]][1].rest:
            sized.append(one)
        elif one.size:
            bounded.append(one)
        else:  # nothing tells two of these apart
            first = boundless.setdefault(one.on, one)
            boundless[one.on] = first if first is one else first._replace(arrays=first.arrays + one.arrays)
    taken = _sums(sized)
    for one in (*bounded, *boundless.values()):
        left = in_use.get(one.on, 0) - taken.get(one.on, 0)
        size = min(one.size or left, left)
        if size > 0:
            sized.append(one._replace(size=size))
            taken[one.on] = taken.get(one.on, 0) + size
    return sized


def accounts(found: Iterable[Buffer], in_use: Mapping[Device, int]) -> list[Account]:
    """Return the account of each framework on each GPU of which it has something."""
    taken = _sums(found)
    return [
        Account(framework=on[0], device=on[1], in_use=in_use.get(on), found=taken.get(on, 0))
        for on in sorted({*taken, *(on for on, size in in_use.items() if size)})
    ]


def _sums(found: Iterable[Buffer]) -> dict[Device, int]:
    sums: dict[Device, int] = {}
    for one in found:
        sums[one.on] = sums.get(one.on, 0) + one.size
    return sums


def groups(found: Sequence[Buffer], leaves: Sequence[int], parents: Sequence[int], *, everything: bool) -> list[Group]:
    """Return rows that together have all memory, the largest first and what has no row of its own last.

    Up to `MOST` arrays have a row each. Of more, an array or an object that leads to some has its own row if it is at
    least one `MOST`th of everything; what is smaller is one row for what leads to it: a list, a layer, a model. No row
    has memory of two GPUs, if it has more than one member.

    Args:
        found: the memory, the largest first.
        leaves: the place in the tree of each; `NOWHERE` of what nothing leads to.
        parents: the tree: the place of what leads to each object, which is less than its own; `NOWHERE` if a way
            begins.
        everything: whether each has a row of its own in any case.
    """
    if everything or len(found) <= MOST:
        return [Group(place=leaf, members=(one,)) for one, leaf in zip(found, leaves, strict=True)]
    sums = _subtree_sizes(found, leaves, parents)
    least = sum(one.size for one in found) / MOST
    row_of = [NOWHERE] * (len(sums) + 1)  # the last is that of `NOWHERE`
    for place, size in enumerate(sums):
        if size:
            parent = parents[place]
            row_of[place] = place if parent == NOWHERE or size >= least else row_of[parent]
    parted = {row_of[parents[row]] for row in set(row_of) if row != NOWHERE} - {NOWHERE}
    members: defaultdict[tuple[Device, int, int], list[Buffer]] = defaultdict(list)
    for number, (one, leaf) in enumerate(zip(found, leaves, strict=True)):
        lonely = leaf == NOWHERE and one.size >= least
        members[one.on, row_of[leaf], number if lonely else NOWHERE].append(one)
    folded = [
        Group(place=place, members=tuple(there), partial=place in parted) for (_, place, _), there in members.items()
    ]
    folded.sort(key=lambda row: -row.size)
    return folded if len(folded) <= MOST else _cap_rows(folded)


def _subtree_sizes(found: Sequence[Buffer], leaves: Sequence[int], parents: Sequence[int]) -> list[int]:
    """Return the bytes to which each object of the tree leads."""
    sums = [0] * len(parents)
    for one, leaf in zip(found, leaves, strict=True):
        if leaf != NOWHERE:
            sums[leaf] += one.size
    for place in range(len(sums) - 1, -1, -1):
        if sums[place] and parents[place] != NOWHERE:
            sums[parents[place]] += sums[place]
    return sums


def _cap_rows(folded: Sequence[Group]) -> list[Group]:
    """Return as many rows as are shown, the last of them with what the others have, for each GPU."""
    gpus = {row.members[0].on for row in folded}
    most = max(MOST - len(gpus), 1)
    shown, left = folded[:most], folded[most:]
    others: dict[Device, list[Buffer]] = {}
    for row in left:
        others.setdefault(row.members[0].on, []).extend(row.members)
    last = [
        Group(place=NOWHERE, members=tuple(sorted(there, key=lambda one: -one.size)), partial=True)
        for there in others.values()
    ]
    return [*shown, *last]
