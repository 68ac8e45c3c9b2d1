"""How a transfer gets on, and what came of it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfgpu_magic.parking import refusals
from tfgpu_magic.parking.refusals import Refusal
from tfgpu_magic.parking.reported import ParkedProcess

ANSWER = "application/vnd.tfgpu-magic.parked+json"
"""The type of an outcome with which a kernel answers who asks something of it; no front end shows it."""


@dataclass(frozen=True, slots=True)
class Room:
    """A GPU that a process needs room on; sizes are in bytes, None where they are unknown."""

    gpu: str  # its UUID
    label: str  # its `Gpu.label`; empty where it is not there now
    needed: int
    free: int | None
    holders: tuple[tuple[int, int | None], ...] = ()  # the pids on it and what they hold, the largest first

    @property
    def short(self) -> int:
        """Bytes that are missing."""
        return max(0, self.needed - (self.free or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a request is getting on."""

    step: str  # a key of `answers.STEPS`
    size: int = 0  # bytes that are moved
    seconds: float | None = None  # that this will take by the measured rate; None where it is not known
    ahead: tuple[int, ...] = ()  # the pids whose turn is before
    rooms: tuple[Room, ...] = ()  # while it waits, each GPU on which it needs room; empty where there are no figures
    trouble: Refusal | None = None  # while it waits, what else is in the way


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkOutcome:
    """What came of a request."""

    entry: ParkedProcess | None = None  # what is known of the process; None where it was never away
    refusals: tuple[Refusal, ...] = ()  # why it was not done; empty where it was, or where it was so already
    seconds: float = 0.0  # that the driver took for what was done
    notes: tuple[Refusal, ...] = ()  # what else is to be said of it

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
