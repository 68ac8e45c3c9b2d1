"""The settings that a kernel sends to a cell's process, and the facts that the process returns: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """The settings of a cell for its process.

    Attributes:
        source: its text.
        number: its number in the notebook.
        outputs: the names to bring back.
        unsent: why names that it may read could not be sent, by name.
        passing: the names that nothing but its imports and loops bind.
        shell: traits of the notebook's shell that the cell's shell takes over.
        traceback: the mode of its tracebacks.
        cells: the notebook's cells, for tracebacks that go through their functions: number and text, by the file name
            that the compiler has for them.
    """

    source: str
    number: int
    outputs: tuple[str, ...] = ()
    unsent: Mapping[str, str] = field(default_factory=dict)
    passing: frozenset[str] = frozenset()
    shell: Mapping[str, object]
    traceback: str = "Context"
    cells: Mapping[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """The facts about a cell that has ended.

    Attributes:
        stays: names that it has bound and that stay behind.
        lacks: names to bring back that it has not bound.
        kept: why something cannot be brought back, by name; the value's name is empty.
        shown: how its value is displayed there, data and metadata; None if it is not.
        given: the pickles of what is brought back: the names in each, and how many of the parts after this one it has;
            the value's name is empty.
    """

    stays: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    kept: Mapping[str, str]
    shown: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    given: tuple[tuple[tuple[str, ...], int], ...] = ()
