"""What is known of a process that is parked, on its way, or has been, as plain data; and how fast it was moved."""

from __future__ import annotations

from dataclasses import dataclass

from tfgpu_magic.model.report import Parking
from tfgpu_magic.parking.states import UNSETTLED, Phase

PLANNED_RATE = 1e9
"""Bytes a second that are planned for where nothing was measured yet: a slow host's."""

_NEWEST = 0.5  # how much the last measurement counts in a rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedProcess(Parking):
    """A process that is parked, on its way, or has been parked.

    Attributes:
        pid: its pid.
        began: when it began, in the system's ticks since its start (`pids.began`).
        phase: how far it has come.
        name: what it is called: a notebook's path, a program's name.
    """

    pid: int
    began: int
    phase: Phase
    name: str = ""

    @property
    def size(self) -> int:
        """Bytes on all GPUs; as long as it is parked they are in the host's memory."""
        return sum(held.size for held in self.held)

    @property
    def parked(self) -> bool:
        """Whether its GPU state is in the host's memory, or on its way there or back."""
        return self.phase in UNSETTLED or self.phase is Phase.PARKED


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast this host moves GPU state, in bytes a second; None where it was never measured.

    Attributes:
        out: from a GPU to host memory.
        back: from host memory to a GPU.
    """

    out: float | None = None
    back: float | None = None

    def after(self, *, out: float | None = None, back: float | None = None) -> Rates:
        """Return the rates after another measurement, which counts as much as all before it."""
        return Rates(_mean(self.out, out), _mean(self.back, back))

    def seconds_out(self, size: int) -> float:
        """Return how long so many bytes take to host memory."""
        return size / (self.out or PLANNED_RATE)

    def seconds_back(self, size: int) -> float:
        """Return how long so many bytes take back: as long as out, where that alone was measured."""
        return size / (self.back or self.out or PLANNED_RATE)


def _mean(before: float | None, now: float | None) -> float | None:
    return before if now is None else now if before is None else before + _NEWEST * (now - before)
