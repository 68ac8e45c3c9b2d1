"""Accounts for the memory that arrays take. Pure.

What shares memory counts once, what has no array is known as a rest, and of very many arrays those that are small
beside the rest are taken together with their neighbours.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.insight.objects.names import NamedMemory, Step, make_name

Device: TypeAlias = "tuple[str, str]"
"""A framework's name, and that of a GPU as the framework has it."""

Arrays: TypeAlias = Sequence["tuple[str, Array]"]
"""Arrays, each with its framework's name, the best named first. Below, its place here stands for each."""

Path: TypeAlias = "tuple[Step, ...]"
"""The steps to an array that can be written, from the root."""

_Place: TypeAlias = "tuple[str, str, tuple[Any, ...]]"
"""A framework's name, a GPU's, and the beginning of a path, or a number, of an array to which none leads."""

_GRAIN = 512
"""Bytes to which allocators round up at most: a view seems to end so much later than the array."""

MOST = 20
"""Rows that are shown if not all are asked for."""

_DEEPEST = 20
"""Steps of a path by which arrays are taken together: a longer name is not shown whole."""


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


def fold(rows: Sequence[NamedMemory], paths: Sequence[Path]) -> list[NamedMemory]:
    """Return rows that together have all memory, the largest first and what has no row of its own last.

    Up to `MOST` arrays have a row each. Of more, an array or an object that leads to some has its own row if it is at
    least one `MOST`th of everything; what is smaller is one row for what leads to it: a list, a layer, a model. No row
    has memory of two GPUs, if it has more than one member.

    Args:
        rows: the arrays, the largest first.
        paths: the path to each; empty of one to which nothing leads.
    """
    if len(rows) <= MOST:
        return list(rows)
    least = sum(one.size for one in rows) / MOST
    beginnings = [
        [(one.framework, one.device, path[:length]) for length in range(min(len(path), _DEEPEST), 0, -1)]
        for one, path in zip(rows, paths, strict=True)
    ]
    sizes, members = Counter[_Place](), defaultdict[_Place, list[NamedMemory]](list)
    for one, places in zip(rows, beginnings, strict=True):
        sizes.update(dict.fromkeys(places, one.size))
    for number, (one, places) in enumerate(zip(rows, beginnings, strict=True)):
        nowhere = one.framework, one.device, (number,) if one.size >= least else ()
        large = (place for place in places if sizes[place] >= least)
        members[next(large, places[-1] if places else nowhere)].append(one)
    parted = {(*on, path[:length]) for *on, path in members for length in range(1, len(path))}
    found = [_together(there, place[2], partial=place in parted) for place, there in members.items()]
    found.sort(key=lambda row: -row.size)
    if len(found) <= MOST:
        return found
    most = max(MOST - len({(row.framework, row.device) for row in found}), 1)
    left = defaultdict[Device, list[NamedMemory]](list)
    for row in found[most:]:
        left[row.framework, row.device].append(row)
    return [*found[:most], *(_together(there, (), partial=True) for there in left.values())]


def _together(members: Sequence[NamedMemory], path: Path, *, partial: bool) -> NamedMemory:
    """Return one row for the arrays of a GPU whose paths begin so. An array alone stays as it is."""
    first, kinds = members[0], {one.what for one in members}
    if len(members) == 1:
        return first
    return NamedMemory(
        name=make_name(path),
        framework=first.framework,
        device=first.device,
        what=kinds.pop() if len(kinds) == 1 else "array",
        size=sum(one.size for one in members),
        count=sum(one.count for one in members),
        partial=partial,
    )
