"""Properties of single nodes of syntax for `walk`: type parameters, names that may be unbound, context managers."""

from __future__ import annotations

import ast
from typing import Any


def parameters(node: Any) -> list[str]:
    """Return the type parameters of a definition (3.12 and later)."""
    return [parameter.name for parameter in getattr(node, "type_params", [])]


def bounds(node: Any) -> list[ast.expr | None]:
    """Return the expressions in a definition's type parameters: bounds, and from 3.13 on defaults."""
    fields = ("bound", "default_value")
    return [getattr(parameter, field, None) for parameter in getattr(node, "type_params", []) for field in fields]


def unsure(node: ast.ClassDef) -> frozenset[str]:
    """Return the names that a class body may unbind, after which it sees the module's again."""
    deleted = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Del)}
    return frozenset(
        deleted | {part.name for part in ast.walk(node) if isinstance(part, ast.ExceptHandler) and part.name}
    )


def swallows(manager: ast.expr) -> bool:
    """Tell whether a context manager is named for catching exceptions."""
    called = ast.unparse(manager.func if isinstance(manager, ast.Call) else manager).rpartition(".")[2].lower()
    return any(word in called for word in ("suppress", "raises", "ignor", "exitstack", "swallow"))
