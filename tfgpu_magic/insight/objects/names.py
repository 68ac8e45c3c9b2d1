"""What holds memory of a GPU, and how it is reached: a root that Python keeps alive, and a path from it. Pure data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Root: TypeAlias = Literal["name", "result", "error", "running", "module", "captured", ""]
"""Where a path begins.

- ``name``: a name of the notebook; ``module``: one of a module of the user's own.
- ``result``: a result that IPython keeps; ``error``: the last error.
- ``running``: a function that is running now.
- ``captured``: a `tf.function`, to which no name leads.
"""


class Step(NamedTuple):
    """One step of a path.

    Attributes:
        text: what is written for the step behind the expression so far: ``.kernel``, ``[3]``; a name, if the expression
            begins with it.
        within: what the expression that begins with the step holds in, ``in train()``; ``{}`` stands for the expression
            so far, as in ``closed over by {}``. Empty if the expression goes on.
        of: what stands for ``{}`` if there is no expression so far.
        inner: whether the step leads into something that its owner does not show to users.
        root: where the path begins, of a first step.
    """

    text: str = ""
    within: str = ""
    of: str = ""
    inner: bool = False
    root: Root = ""


NOWHERE = -1
"""The place of an object to which nothing leads, where objects are numbered in the order in which they were reached."""


@dataclass(frozen=True, slots=True)
class Name:
    """How an array is reached.

    Attributes:
        parts: the expression in the pieces of which it is made, ``("model", ".layers[2]", ".kernel")``; empty if
            nothing that can be written leads to it.
        within: what the expression holds in, the innermost first: ``("in train()", "kept by the last error")``; empty
            if it holds in the notebook.
        inner: whether the array is within the last piece in a way that its users do not see.
        root: where the path begins; empty if nothing leads to the array.
    """

    parts: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    inner: bool = False
    root: Root = ""

    @property
    def expression(self) -> str:
        """The expression, ``model.layers[2].kernel``."""
        return "".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMemory:
    """An array on a GPU and what holds it, or several arrays to which the same object leads.

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


def make_name(path: Iterable[Step]) -> Name:
    """Return the name of the object to which a path leads, an empty one for no path."""
    parts, within = list[str](), list[str]()
    root: Root = ""
    for step in path:
        root = root or step.root
        if step.inner:
            return Name(tuple(parts), tuple(within), inner=True, root=root)
        if step.within:
            here = "".join(parts)
            if here and "{}" not in step.within:
                within.insert(0, f"kept by {here}")
            within.insert(0, step.within.format(here or step.of))
            parts = []
        if step.text:
            parts.append(step.text)
    return Name(tuple(parts), tuple(within), root=root)
