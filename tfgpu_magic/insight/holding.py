"""What holds memory of a GPU: an array with its name, or several together. Pure data, which holds none of it."""

from __future__ import annotations

from dataclasses import dataclass

from tfgpu_magic.insight.names import Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """An array on a GPU and what holds it; or several arrays to which the same object leads.

    Attributes:
        name: how it is reached, or what leads to all of several; empty where no name leads there.
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
