"""Finds what the bodies of a cell's functions do to global names when they run, scoped by Python's `symtable`."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tfgpu_magic.isolate.cells.names.magics import meaning

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Body:
    """What a function's body does, with what is nested in it.

    Attributes:
        reads: global names that it reads.
        binds: global names that it binds, by `global`; of those, `imports` by an import.
        magics: what its magics run or expand, as Python; a name there is the function's own if it has it, else global.
        own: the function's names.
    """

    reads: frozenset[str]
    binds: tuple[str, ...]
    imports: frozenset[str]
    magics: tuple[str, ...]
    own: frozenset[str]


class Functions:
    """The functions of a source, by the line of their `def` or `lambda`; those on the same line are taken together.

    Raises:
        SyntaxError: the source's scopes are not valid.
    """

    def __init__(self, source: str) -> None:
        self._tables: dict[int, list[symtable.SymbolTable]] = {}
        for table in _family([symtable.symtable(source, "<cell>", "exec")]):
            if table.get_type() == "function":
                self._tables.setdefault(table.get_lineno(), []).append(table)

    def body(self, node: Function) -> Body:
        """Return what a function of this source does."""
        tables = self._tables[node.lineno]
        symbols = [(table.get_type(), symbol) for table in _family(tables) for symbol in table.get_symbols()]
        shared = [symbol for _, symbol in symbols if symbol.is_global()]
        again = _changed(node)
        own = frozenset(s.get_name() for table in tables for s in table.get_symbols() if not s.is_global())
        parts = list(ast.walk(node))
        reads = {s.get_name() for s in shared if s.is_referenced() or s.get_name() in again}
        reads |= {name for part in parts if isinstance(part, ast.Constant) for name in mentioned(part)} - own
        # A class body reads the module's name while it has not bound its own.
        reads |= {s.get_name() for kind, s in symbols if kind == "class" and s.is_local() and s.is_referenced()}
        return Body(
            frozenset(reads),
            tuple(s.get_name() for s in shared if s.is_assigned() or s.is_imported()),
            frozenset(s.get_name() for s in shared if s.is_imported()),
            tuple(magic.source for call in parts if isinstance(call, ast.Call) and (magic := meaning(call))),
            own,
        )


def mentioned(text: ast.Constant) -> list[str]:
    """Return the names that a text refers to in the syntax of pandas' `query` and `eval`: `a > @cutoff`."""
    return re.findall(r"@([^\W\d]\w*)", text.value) if isinstance(text.value, str) else []


def _family(tables: Iterable[symtable.SymbolTable]) -> Iterator[symtable.SymbolTable]:
    for table in tables:
        yield table
        yield from _family(table.get_children())


def _changed(node: Function) -> set[str]:
    """Return the names that are read by a change, which is in no symbol table: `x += 1`, `del x`."""
    changed = set()
    for part in ast.walk(node):
        match part:
            case ast.AugAssign(target=ast.Name(id=name)) | ast.Name(id=name, ctx=ast.Del()):
                changed.add(name)
    return changed
