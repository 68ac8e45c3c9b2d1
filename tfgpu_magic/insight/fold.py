"""Few rows for very many arrays: what is small beside the rest is taken together with its neighbours. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tfgpu_magic.insight.accounts import Buffer, Device

MOST = 20
"""Rows that are shown where not all are asked for."""

NOWHERE = -1
"""The place of what nothing leads to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The memory of one array, or of several to which the same object leads.

    Attributes:
        members: the memory, the largest first.
        place: the place of that object in the tree; `NOWHERE` where they have none in common.
        partial: whether more memory to which that object leads has rows of its own.
    """

    members: tuple[Buffer, ...]
    place: int = NOWHERE
    partial: bool = False

    @property
    def size(self) -> int:
        """Bytes that they take together."""
        return sum(one.size for one in self.members)


def rows(found: Sequence[Buffer], leaves: Sequence[int], parents: Sequence[int], *, everything: bool) -> list[Row]:
    """Return rows that together have all memory, the largest first and what has no row of its own last.

    Up to `MOST` arrays have a row each. Of more, an array or an object that leads to some has its own row if it is at
    least one `MOST`th of everything; what is smaller is one row for what leads to it: a list, a layer, a model. No row
    has memory of two GPUs, if it has more than one member.

    Args:
        found: the memory, the largest first.
        leaves: the place in the tree of each; `NOWHERE` of what nothing leads to.
        parents: the tree: the place of what leads to each object, which is less than its own; `NOWHERE` where a way
            begins.
        everything: whether each has a row of its own in any case.
    """
    if everything or len(found) <= MOST:
        return [Row(place=leaf, members=(one,)) for one, leaf in zip(found, leaves, strict=True)]
    sums = _sums(found, leaves, parents)
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
        Row(place=place, members=tuple(there), partial=place in parted) for (_, place, _), there in members.items()
    ]
    folded.sort(key=lambda row: -row.size)
    return folded if len(folded) <= MOST else _capped(folded)


def _sums(found: Sequence[Buffer], leaves: Sequence[int], parents: Sequence[int]) -> list[int]:
    """Return the bytes to which each object of the tree leads."""
    sums = [0] * len(parents)
    for one, leaf in zip(found, leaves, strict=True):
        if leaf != NOWHERE:
            sums[leaf] += one.size
    for place in range(len(sums) - 1, -1, -1):
        if sums[place] and parents[place] != NOWHERE:
            sums[parents[place]] += sums[place]
    return sums


def _capped(folded: Sequence[Row]) -> list[Row]:
    """Return as many rows as are shown, the last of them with what the others have, for each GPU."""
    gpus = {row.members[0].on for row in folded}
    most = max(MOST - len(gpus), 1)
    shown, left = folded[:most], folded[most:]
    others: dict[Device, list[Buffer]] = {}
    for row in left:
        others.setdefault(row.members[0].on, []).extend(row.members)
    last = [
        Row(place=NOWHERE, members=tuple(sorted(there, key=lambda one: -one.size)), partial=True)
        for there in others.values()
    ]
    return [*shown, *last]
