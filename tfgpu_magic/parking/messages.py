"""How a transfer gets on, and what came of it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfgpu_magic.parking import refusals
from tfgpu_magic.parking.reported import ParkedProcess

if TYPE_CHECKING:
    from tfgpu_magic.parking.refusals import Refusal

ANSWER = "application/vnd.tfgpu-magic.parked+json"
"""The type of an outcome with which a kernel answers who asks something of it; no front end shows it."""


@dataclass(frozen=True, slots=True)
class Room:
    """A GPU that a process needs room on.

    Attributes:
        gpu: its UUID.
        label: its `Gpu.label`; empty where it is not there now.
        needed: bytes that must be free.
        free: bytes that are free; None where that is unknown.
        holders: the pids on it and what they hold, the largest first.
    """

    gpu: str
    label: str
    needed: int
    free: int | None
    holders: tuple[tuple[int, int | None], ...] = ()

    @property
    def short(self) -> int:
        """Bytes that are missing."""
        return max(0, self.needed - (self.free or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a request is getting on.

    Attributes:
        step: what is being done: ``begins``, ``checks``, ``locks``, ``copies out``, ``copies to disk``, ``settles``,
            ``waits``, ``takes room``, ``copies back``.
        size: bytes that are moved.
        seconds: how long that will take by the measured rate, from its beginning; None where it is not known.
        ahead: the pids whose turn is before.
        rooms: while it waits, each GPU on which it needs room; empty where there are no figures.
        trouble: while it waits, what else is in the way; None where that is nothing.
    """

    step: str
    size: int = 0
    seconds: float | None = None
    ahead: tuple[int, ...] = ()
    rooms: tuple[Room, ...] = ()
    trouble: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkOutcome:
    """What came of a request.

    Attributes:
        entry: what is known of the process; None where it was never away.
        refusals: why it was not done; empty where it was, or where it was so already.
        seconds: how long the driver took for what was done.
        notes: what else is to be said of it.
    """

    entry: ParkedProcess | None = None
    refusals: tuple[Refusal, ...] = ()
    seconds: float = 0.0
    notes: tuple[Refusal, ...] = ()

    @property
    def done(self) -> bool:
        """Whether it was done, or was so already."""
        return not self.refusals

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        """Return what IPython sends of it: without the time, and without what its process reports of itself."""
        told = {"refusals": self.refusals, "notes": self.notes}
        return {ANSWER: {name: list(map(refusals.to_json, some)) for name, some in told.items()}}

    @classmethod
    def from_answer(cls, told: Mapping[str, Any]) -> ParkOutcome:
        """Make one of what another kernel has sent; whatever is raised, it is none."""
        refused, notes = (tuple(map(refusals.from_json, told[name])) for name in ("refusals", "notes"))
        return cls(refusals=refused, notes=notes)
