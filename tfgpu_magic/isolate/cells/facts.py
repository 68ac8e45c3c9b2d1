"""What a kernel tells a cell's process of the cell, and what that tells the kernel when it has ended: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """What a cell's process must know of the cell.

    Attributes:
        source: its text.
        number: its number in the notebook.
        outputs: the names to bring back.
        passing: the names that nothing but its imports and loops bind.
        changes: the names whose objects its text says that it changes.
        shell: traits of the notebook's shell that the cell's has too.
        traceback: the mode of its tracebacks.
        cells: the notebook's cells, for tracebacks that go through functions of theirs: number and text, by the name
            that the compiler knows them by.
    """

    source: str
    number: int
    outputs: tuple[str, ...] = ()
    passing: frozenset[str] = frozenset()
    changes: tuple[str, ...] = ()
    shell: Mapping[str, object]
    traceback: str = "Context"
    cells: Mapping[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """What came of a cell.

    Attributes:
        stays: names that it has bound and that stay behind.
        changed: names of the notebook's whose objects it has changed, as its text says, and that stay behind.
        variables: environment variables that it has changed.
        moved: whether it has changed the working directory.
        lacks: names to bring back that it has not bound.
        kept: why something cannot come home, by name; the value's name is empty.
        shown: how its value is displayed there, data and metadata; None where it is not.
        given: the pickles of what comes home: the names in each, and how many of the parts after this one it has; the
            value's name is empty.
    """

    stays: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    moved: bool = False
    lacks: tuple[str, ...] = ()
    kept: Mapping[str, str]
    shown: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    given: tuple[tuple[tuple[str, ...], int], ...] = ()
