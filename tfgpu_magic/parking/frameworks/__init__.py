"""What parking moves of each framework: its arrays that can leave a GPU and come back in place, and what stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

UNREADABLE = "This is in host memory, and not on the GPU. `%tf_gpu unpark --without-gpu NAME` makes NumPy arrays of it."


class Movable(Protocol):
    """An array on a GPU that can leave it, and come back to whatever refers to it.

    Attributes:
        name: what people know it by.
        size: the bytes that become free.
        gpu: the UUID of its GPU.
    """

    name: str
    size: int
    gpu: str

    def copied(self) -> object:
        """Return a copy of it in host memory, once that is whole; it changes nothing."""

    def take_out(self) -> None:
        """Copy it to host memory, and free it on the GPU once the copy is whole; after an error, call `put_back`."""

    def put_back(self) -> None:
        """Bring it back to the GPU, if it has left that; after an error it is still in host memory."""

    def make_unreadable(self) -> None:
        """Have each read on the GPU raise an error with `UNREADABLE` from now on; it is in host memory for good."""


@dataclass(frozen=True, slots=True)
class Staying:
    """Something that stays on a GPU.

    Attributes:
        name: what people know it by.
        size: its bytes; None where they are not known.
        why: why it stays.
    """

    name: str
    size: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What of a framework's memory leaves, and what stays.

    Attributes:
        leaves: what leaves.
        stays: what stays, by name.
        refusal: why this process must not be parked at all, and what to do; empty if it may be.
    """

    leaves: Sequence[Movable] = ()
    stays: Sequence[Staying] = ()
    refusal: str = ""


class Mover(Protocol):
    """What moves a framework's arrays; it is asked only where the framework uses a GPU."""

    def addresses(self, objects: Sequence[object]) -> list[int]:
        """Return where its arrays begin, for those of others that may be the same memory."""

    def survey(self, objects: Sequence[object], foreign: Sequence[int]) -> Survey:
        """Find what can leave. It waits for the GPU's work, and changes nothing.

        Args:
            objects: all objects that Python's garbage collector knows.
            foreign: where the arrays of other frameworks begin.
        """

    def array(self, thing: Any, away: Sequence[Movable]) -> Any:
        """Return the value of a variable or tensor as a NumPy array; None for anything else.

        Of a type that NumPy does not know, or of several arrays, it is a dict of them by what they are.
        """

    def give_back(self) -> object:
        """Give back to the driver what became free."""
