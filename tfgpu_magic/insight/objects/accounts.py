"""Accounts for the memory that arrays take. Pure.

What shares memory counts once, what has no array is known as a rest, and of very many arrays those that are small
beside the rest are taken together with their neighbours.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.insight.objects.names import NOWHERE

Device: TypeAlias = "tuple[str, str]"
"""A framework's name, and that of a GPU as the framework has it."""

Arrays: TypeAlias = Sequence["tuple[str, Array]"]
"""Arrays, each with its framework's name, the best named first. Below, its place here stands for each."""

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
        """Bytes in use that no array of Python's takes, or None if the framework has no figure."""
        return None if self.in_use is None else max(self.in_use - self.found, 0)

    @property
    def excess(self) -> int:
        """Bytes by which the arrays come to more than is in use: some share memory, and do not tell that."""
        return 0 if self.in_use is None else max(self.found - self.in_use, 0)


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
    sized, bounded, shared = list[Buffer](), list[Buffer](), defaultdict[Device, tuple[int, ...]](tuple)
    for one in found:
        if arrays[one.arrays[0]][1].rest and not one.size:
            shared[one.on] += one.arrays  # nothing tells two of these apart
        else:
            (bounded if arrays[one.arrays[0]][1].rest else sized).append(one)
    taken = _sum_by_device(sized)
    for one in (*bounded, *(Buffer(on, 0, there) for on, there in shared.items())):
        left = in_use.get(one.on, 0) - taken[one.on]
        size = min(one.size or left, left)
        if size > 0:
            sized.append(one._replace(size=size))
            taken[one.on] += size
    return sized


def accounts(found: Iterable[Buffer], in_use: Mapping[Device, int]) -> list[Account]:
    """Return the account of each framework on each GPU of which it has something."""
    taken = _sum_by_device(found)
    return [
        Account(framework=on[0], device=on[1], in_use=in_use.get(on), found=taken[on])
        for on in sorted({*taken, *(on for on, size in in_use.items() if size)})
    ]


def _sum_by_device(found: Iterable[Buffer]) -> Counter[Device]:
    sums = Counter[Device]()
    for one in found:
        sums[one.on] += one.size
    return sums


class Group(NamedTuple):
    """The memory of one row: of one array, or of several to which the same object leads.

    Attributes:
        members: the places of the memory in the list of all.
        place: the place of that object; `NOWHERE` if they have none in common.
        partial: whether more memory to which that object leads has rows of its own.
    """

    members: tuple[int, ...]
    place: int = NOWHERE
    partial: bool = False


def fold(found: Sequence[Buffer], chains: Sequence[Sequence[int]]) -> list[Group]:
    """Return rows that together have all memory, the largest first and what has no row of its own last.

    Up to `MOST` arrays have a row each. Of more, an array or an object that leads to some has its own row if it is at
    least one `MOST`th of everything; what is smaller is one row for what leads to it: a list, a layer, a model. No row
    has memory of two GPUs, if it has more than one member.

    Args:
        found: the memory, the largest first.
        chains: the place of each, then those of the objects that lead there, up to the root; empty if nothing does.
    """
    if len(found) <= MOST:
        return [Group((number,), next(iter(chain), NOWHERE)) for number, chain in enumerate(chains)]
    least, sizes = sum(one.size for one in found) / MOST, Counter[int]()
    for one, chain in zip(found, chains, strict=True):
        for place in chain:
            sizes[place] += one.size
    members = defaultdict[tuple[Device, int, int], list[int]](list)
    for number, (one, chain) in enumerate(zip(found, chains, strict=True)):
        lonely = number if not chain and one.size >= least else NOWHERE
        large = (place for place in chain if sizes[place] >= least)
        members[one.on, next(large, chain[-1] if chain else NOWHERE), lonely].append(number)
    rows, parted = {place for _, place, _ in members}, set[int]()
    for (_, place, _), there in members.items():
        chain = chains[there[0]]
        parted |= rows.intersection(chain[chain.index(place) + 1 :] if chain else ())
    groups = [Group(tuple(there), place, place in parted) for (_, place, _), there in members.items()]
    groups.sort(key=lambda row: -sum(found[one].size for one in row.members))
    if len(groups) <= MOST:
        return groups
    most = max(MOST - len({found[row.members[0]].on for row in groups}), 1)
    left = defaultdict[Device, list[int]](list)
    for row in groups[most:]:
        left[found[row.members[0]].on] += row.members
    return [*groups[:most], *(Group(tuple(there), NOWHERE, partial=True) for there in left.values())]
