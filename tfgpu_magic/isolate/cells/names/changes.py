"""Finds the name whose object a node of syntax changes in place, without an assignment to the name."""

from __future__ import annotations

import ast

_METHODS = frozenset(
    {
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "extendleft",
        "fill",
        "insert",
        "pop",
        "popitem",
        "put",
    }
    | {"remove", "reverse", "setdefault", "sort", "update"}
    | {"assign", "compile", "fit", "load_state_dict", "load_weights", "partial_fit", "set_weights", "train_on_batch"}
)
"""Methods that change their object, by their usual names."""


def changed(node: ast.AST) -> str | None:
    """Return the name at the root of what is changed: `x` of `x[0].y = 1`, `del x[0]`, `x += y`, `x.rows.append(1)`."""
    match node:
        case ast.AugAssign(target=ast.Name(id=name)):
            return name
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            return _root(node)
        case ast.Call(func=ast.Attribute(value=inside, attr=method), keywords=keywords):
            return _root(inside) if method in _METHODS or any(map(_in_place, keywords)) else None
    return None


def _in_place(keyword: ast.keyword) -> bool:
    """Tell whether a keyword is pandas' `inplace=True`."""
    return keyword.arg == "inplace" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True


def _root(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
