"""What parking moves of each framework: its arrays that can leave a GPU and come back in place, and what stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tfgpu_magic.errors import Refused, Room, TfGpuError
from tfgpu_magic.ground.message import Line, Message, msg
from tfgpu_magic.ground.units import rounded

LEAST = 0.1
"""The part of what a process holds that must leave, for parking to be worth it."""

UNREADABLE = msg(
    "This is in host memory, and not on the GPU. `{line}` makes NumPy arrays of it.",
    line=Line("unpark --without-gpu NAME"),
)


def refusal(message: Message, *, retryable: Room | None = None) -> Refused:
    """Return the error that something cannot be parked, moved or brought back now; the message says why."""
    return Refused(message, verdict=None, retryable=retryable)


def message_of(error: Exception) -> Message:
    """Return what went wrong, whatever error it is."""
    return error.message if isinstance(error, TfGpuError) else msg("{text}", text=str(error) or type(error).__name__)


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
        """Return a complete copy of it in host memory, and change nothing."""

    def take_out(self) -> None:
        """Copy it to host memory, and free it on the GPU once the copy is complete; after an error, call `put_back`."""

    def put_back(self) -> None:
        """Bring it back to the GPU if it has left that. The copy in host memory stays."""

    def make_unreadable(self) -> None:
        """Make each read on the GPU raise an error with `UNREADABLE` from now on."""


@dataclass(frozen=True, slots=True)
class Staying:
    """Something that stays on a GPU.

    Attributes:
        name: what people know it by.
        size: its bytes; None if they are not known.
        why: why it stays, without a full stop.
    """

    name: str
    size: int | None
    why: Message


@dataclass(frozen=True, slots=True)
class Survey:
    """What leaves the GPUs, and what stays: of one framework, or of a process.

    Attributes:
        leaves: what leaves.
        stays: what stays, by name.
        refusals: why this process must not be parked at all, and what to do.
        seconds: about how long the way out takes; None if that was not measured.
    """

    leaves: Sequence[Movable] = ()
    stays: Sequence[Staying] = ()
    refusals: Sequence[Message] = ()
    seconds: float | None = None

    @property
    def leaving(self) -> int:
        """The bytes that leave."""
        return sum(one.size for one in self.leaves)

    @property
    def staying(self) -> int:
        """The bytes that stay, as far as they are known."""
        return sum(one.size or 0 for one in self.stays)

    @property
    def reasons(self) -> Sequence[Message]:
        """Why this process must not be parked, or is not worth it."""
        if self.leaving and self.leaving >= LEAST * (self.leaving + self.staying):
            return self.refusals
        if not (self.leaving or self.stays):
            return [*self.refusals, msg("Neither TensorFlow nor PyTorch has anything on a GPU here.")]
        leaves = msg("Only {size}", size=rounded(self.leaving)) if self.leaving else msg("Nothing")
        little = "{leaves} would leave the GPU, and {staying} would stay."
        return [*self.refusals, msg(little, leaves=leaves, staying=rounded(self.staying))]


class Mover(Protocol):
    """The module that moves a framework's arrays. It is asked only if the framework uses a GPU."""

    def addresses(self, objects: Sequence[object]) -> list[int]:
        """Return where its arrays begin, to find those of other frameworks that are the same memory."""

    def survey(self, objects: Sequence[object], foreign: Sequence[int]) -> Survey:
        """Find what can leave. It waits for the GPU's work, and changes nothing.

        Args:
            objects: all objects that Python's garbage collector knows.
            foreign: where the arrays of other frameworks begin.
        """

    def array(self, thing: Any, moved: Sequence[Movable]) -> Any:
        """Return the value of a variable or tensor as a NumPy array; None for anything else.

        Of a type that NumPy does not know, or of several arrays, it is a dict of them by what they are.

        Args:
            thing: anything.
            moved: what is in host memory.
        """
