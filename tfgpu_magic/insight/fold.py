"""Few rows for many arrays: what is small beside the rest is taken together with its neighbours. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfgpu_magic.insight.accounts import Holding
from tfgpu_magic.insight.names import Name

MOST = 20
"""Rows that are shown where not all are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One array, or several that have the beginning of their names in common.

    Attributes:
        name: the name, or its beginning; empty where they have none in common.
        members: the arrays, the largest first.
        rest: whether other arrays whose names begin so have rows of their own.
    """

    name: Name
    members: tuple[Holding, ...]
    rest: bool = False

    @property
    def size(self) -> int:
        """Bytes that they take together."""
        return sum(one.size for one in self.members)


def rows(holdings: Sequence[Holding], *, everything: bool = False) -> list[Row]:
    """Return rows that together have all arrays, the largest first and what has no row of its own last.

    Up to `MOST` arrays have a row each. Of more, an array or a part of a model has its own row if it is at least one
    `MOST`th of everything; what is smaller is one row with what is beside it: a list, a layer, a model.

    Args:
        holdings: the arrays.
        everything: whether each has a row of its own in any case.
    """
    if everything or len(holdings) <= MOST:
        return [Row(name=one.name, members=(one,)) for one in holdings]
    least = sum(one.size for one in holdings) / MOST
    folded = [row for members in _groups(holdings, 1) for row in _folded(members, 1, least)]
    folded.sort(key=lambda row: -row.size)
    if len(folded) <= MOST:
        return folded
    shown, left = folded[: MOST - 1], folded[MOST - 1 :]
    return [*shown, Row(name=Name(), members=_members(one for row in left for one in row.members), rest=True)]


def _folded(members: Sequence[Holding], depth: int, least: float) -> list[Row]:
    """Return the rows of arrays whose names have so many pieces in common."""
    inside = _groups(members, depth + 1) if any(len(one.name.parts) > depth for one in members) else []
    found: list[Row] = []
    small: list[Holding] = []
    for group in inside or [members]:
        if inside and sum(one.size for one in group) >= least:
            found += _folded(group, depth + 1, least)
        else:
            small += group
    rest = _members(small)
    if rest:
        first = rest[0].name
        common = first if len(rest) == 1 else Name(first.parts[:depth], first.scopes)
        found.append(Row(name=common, members=rest, rest=bool(found)))
    return found


def _groups(holdings: Iterable[Holding], depth: int) -> list[list[Holding]]:
    """Return arrays by the scopes and the first pieces of their names."""
    found: dict[tuple[object, ...], list[Holding]] = {}
    for one in holdings:
        found.setdefault((one.name.scopes, one.name.parts[:depth]), []).append(one)
    return list(found.values())


def _members(holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    return tuple(sorted(holdings, key=lambda one: -one.size))
