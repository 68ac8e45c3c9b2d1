"""Tracks definite assignment: the names settled at a point of a cell, and those read and bound; used by `walk`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

Settled: TypeAlias = "frozenset[str] | None"
"""Names definitely assigned here, so that their value from before the cell cannot be seen; None: unreachable."""


def met(states: Iterable[Settled]) -> Settled:
    """Return what is settled where several branches meet."""
    reached = [state for state in states if state is not None]
    return frozenset.intersection(*reached) if reached else None


@dataclass(frozen=True, slots=True)
class ClassBody:
    """The class whose body is walked: what was settled before it, and which of its names may become unbound."""

    before: Settled
    unsure: frozenset[str]
    globals: set[str]


class Assignments:
    """What a cell has done to names so far.

    A name is settled (definitely assigned) once the cell has bound it, or deleted it, on every path to this point, and
    stays so: even unbound, it is not the notebook's any more.
    """

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.binds: dict[str, None] = {}
        self.imports: set[str] = set()
        self.turns: set[str] = set()  # bound by a loop at each iteration
        self.meant: set[str] = set()  # bound by anything else
        self.turning = False
        self.settled: Settled = frozenset()
        self.lasting: set[str] = set()  # bound by functions, perhaps after a `del`
        self.hidden: frozenset[str] = frozenset()  # names of comprehensions and type parameters, around here
        self.inside: ClassBody | None = None
        self.branches = 0

    def read(self, name: str, *, nested: bool = False) -> None:
        """Note that a name is looked up, here or (`nested`) in a function, which sees no class around it."""
        settled = self.inside.before if nested and self.inside else self.settled
        if settled is not None and name not in settled and name not in self.hidden:
            self.reads.add(name)

    def settle(self, name: str) -> None:
        """Note that a name's value from before the cell cannot be seen from here on."""
        if self.settled is not None:
            self.settled |= {name}

    def local(self, name: str) -> bool:
        """Tell whether a name that is bound here is not the module's."""
        return name in self.hidden or (self.inside is not None and name not in self.inside.globals)

    def bind(self, name: str, *, imported: bool = False) -> None:
        """Note that a name is bound, in the module or the class that is walked."""
        if self.local(name):
            if self.inside and name not in self.inside.unsure:
                self.settle(name)
            return
        self.keep(name, imported=imported)
        self.settle(name)

    def keep(self, name: str, *, imported: bool) -> None:
        """Note that the cell may leave a global name bound."""
        if imported:
            self.imports.add(name)
        else:
            self.binds[name] = None
            (self.turns if self.turning else self.meant).add(name)

    def unbind(self, name: str) -> None:
        """Note that a name is deleted, which also reads it: it must be bound."""
        if self.local(name):
            return
        self.read(name)
        self.settle(name)
        if not self.branches and name not in self.lasting:
            self.binds.pop(name, None)
            self.imports.discard(name)

    @contextmanager
    def hiding(self, hidden: Iterable[str]) -> Iterator[None]:
        """Treat names as those of a comprehension or of type parameters, within the block."""
        around, self.hidden = self.hidden, self.hidden.union(hidden)
        yield
        self.hidden = around

    @contextmanager
    def scope(self, inside: ClassBody | None) -> Iterator[None]:
        """Walk a class or comprehension, which does not see the names of a class around it, and settles none for it."""
        settled, around = self.settled, self.inside
        self.settled = around.before if around else settled
        self.inside = inside
        yield
        self.settled, self.inside = settled, around
