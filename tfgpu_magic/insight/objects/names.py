"""What holds memory of a GPU, and how it is reached: the expression that gives it, and where that holds. Pure data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal[
    "error",
    "running",
    "function",
    "closure",
    "generator",
    "coroutine",
    "temporary",
    "result",
    "holder",
    "captures",
]
"""What an expression holds in.

- ``error``: what the last error keeps; ``result``: what IPython keeps of the last cell.
- ``running``: a function that is running now; ``function``: one that an error has ended.
- ``closure``: a function that closes over the name; ``generator``, ``coroutine``: one that is suspended.
- ``temporary``: what a function was computing, for which it has no name.
- ``holder``: what an expression gives, such as an error that has a name.
- ``captures``: a variable that a `tf.function` has captured, to which no name leads.
"""


class Scope(NamedTuple):
    """What an expression holds in.

    Attributes:
        kind: what it is.
        of: its name, or the name of its class; empty if it has none.
    """

    kind: Kind
    of: str = ""


class Step(NamedTuple):
    """What leads from one object to the next.

    Attributes:
        text: what is written for it behind the expression so far: ``.kernel``, ``[3]``; a name, if a scope begins.
        scope: the scope that begins with it; None if the expression goes on.
        inner: whether it leads into what its owner does not show to users.
    """

    text: str = ""
    scope: Scope | None = None
    inner: bool = False


NOWHERE = -1
"""The place of what nothing leads to, where objects are numbered in the order in which they were reached."""


@dataclass(frozen=True, slots=True)
class Name:
    """How an array is reached.

    Attributes:
        parts: the expression in the pieces of which it is made, ``("model", ".layers[2]", ".kernel")``; empty if
            nothing that can be written leads to it.
        scopes: what the expression holds in, the innermost first; empty if it holds in the notebook.
        inner: whether the array is within the last piece in a way that its users do not see.
    """

    parts: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ()
    inner: bool = False

    @property
    def expression(self) -> str:
        """The expression, ``model.layers[2].kernel``."""
        return "".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMemory:
    """An array on a GPU and what holds it; or several arrays to which the same object leads.

    Attributes:
        name: how it is reached, or what leads to all of several; empty if no name leads there.
        others: other names that lead to it, or to arrays that share its memory.
        framework: the name of its framework.
        device: its GPU, as its framework names it: ``GPU:0``, ``cuda:0``.
        what: ``tensor``, ``variable``, ``gradient``, ``dataset iterator``; ``array`` for several of different kinds.
        dtype: the type of its elements; empty for several.
        shape: its shape; empty for several.
        size: bytes that it takes, as its framework's allocator counts them.
        count: how many arrays they are.
        partial: whether more arrays, whose names begin so, stand by themselves.
        rest: whether its size is not known, and `size` is what is in use on its GPU beyond all others.
    """

    name: Name
    others: tuple[Name, ...] = ()
    framework: str
    device: str
    what: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    size: int
    count: int = 1
    partial: bool = False
    rest: bool = False


def make_name(steps: Iterable[Step]) -> Name:
    """Make the name of what is reached by steps, the first of them from nowhere."""
    parts: list[str] = []
    scopes: list[Scope] = []
    for step in steps:
        if step.inner:
            return Name(tuple(parts), tuple(scopes), inner=True)
        if step.scope is not None:
            scope = step.scope
            if parts and scope.kind in ("closure", "generator", "coroutine"):
                scope = Scope(scope.kind, "".join(parts))  # it is known by the expression that led there
            elif parts:
                scopes.insert(0, Scope("holder", "".join(parts)))
            scopes.insert(0, scope)
            parts = []
        if step.text:
            parts.append(step.text)
    return Name(tuple(parts), tuple(scopes))
