"""An array on a GPU as its own framework describes it, for as long as somebody looks at it."""

from __future__ import annotations

from typing import NamedTuple


class Array(NamedTuple):
    """One array on one GPU. There may be very many, and a named tuple is the quickest to make.

    Attributes:
        thing: the Python object through which it is held. Whoever reads this lets go of it when the look is over.
        what: ``tensor``, ``variable``, or what else its framework calls it.
        dtype: the type of its elements, as its framework names it.
        shape: its shape.
        size: bytes that its framework's allocator counts for it.
        device: its GPU, as its framework names it: ``GPU:0``, ``cuda:0``.
        address: where its memory begins there; None where its framework does not tell.
        part: what leads from that object to the array, ``.grad``; empty where the object is the array.
        rest: whether its size cannot be asked for. It takes what is in use beyond all others, and at most `size`, if
            that is not 0.
        captured: whether its variable is gone, and a compiled function that has read it keeps it.
    """

    thing: object
    what: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    device: str
    address: int | None = None
    part: str = ""
    rest: bool = False
    captured: bool = False


def round_up(size: int, unit: int) -> int:
    """Return the bytes that an allocator takes for an array, which it rounds up to whole units."""
    return -(size // -unit) * unit
