"""Decides when this process reports, and when a kernel whose jobs run shows its server that it is in use. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TypeAlias

EVERY = 1.0
"""Seconds between two reports while something may change."""
SHARE = 0.01
"""The share of the time that reports may take."""
ACTIVITY_EVERY = 30.0
"""Seconds between two signs of activity of a kernel with a running job: its server may end kernels that are idle."""


@dataclass(frozen=True, slots=True)
class ReporterState:
    """What is known of this process.

    Attributes:
        active: when a cell or a job began or ended, or a widget was used, in seconds since the epoch.
        program: whether it is a program, and no kernel.
        running: whether a cell runs.
        jobs: whether cells or calls run in the background: they would end with their kernel, so it is not idle.
        ready: whether a framework used a GPU at the last report, so that its figures may change by themselves.
        pause: seconds until the next report, while something may change.
        shown: when the last sign of activity was sent, in seconds since the epoch.
    """

    active: float
    program: bool = False
    running: bool = False
    jobs: bool = False
    ready: bool = False
    pause: float = EVERY
    shown: float = float("-inf")

    @property
    def busy(self) -> bool | None:
        """Whether a cell or a job runs, or None of a program, which has neither."""
        return None if self.program else self.running or self.jobs


@dataclass(frozen=True, slots=True)
class Turned:
    """Note that a cell has begun or ended."""

    running: bool


@dataclass(frozen=True, slots=True)
class Used:
    """A page has sent a message to a widget."""


@dataclass(frozen=True, slots=True)
class Due:
    """The time of `wait` is over, or a deed has ended it. Background jobs run, or none."""

    jobs: bool


@dataclass(frozen=True, slots=True)
class Reported:
    """A report was made.

    Attributes:
        took: the seconds that this took.
        ready: as in `ReporterState`.
        longest: the most seconds between two reports.
    """

    took: float
    ready: bool
    longest: float


Event: TypeAlias = Turned | Used | Due | Reported


class ReporterDeed(enum.Enum):
    """What is to be done."""

    WAKE = "end the wait for the next report"
    SHOW_ACTIVITY = "send the server a sign of activity"


def step(state: ReporterState, event: Event, now: float) -> tuple[ReporterState, tuple[ReporterDeed, ...]]:
    """Return the state after an event, and what is to be done.

    Args:
        state: the state before it.
        event: what has happened.
        now: seconds since the epoch.
    """
    match event:
        case Turned(running):
            return replace(state, running=running, active=now), (ReporterDeed.WAKE,)
        case Used():
            if 0 <= now - state.active < EVERY:  # a slider sends a hundred messages a second
                return state, ()
            return replace(state, active=now), (ReporterDeed.WAKE,)
        case Due(jobs):
            active = now if state.jobs and not jobs else state.active
            shows = jobs and not state.running and _until_activity(state, now) == 0
            after = replace(state, active=active, jobs=jobs, shown=now if shows else state.shown)
            return after, (ReporterDeed.SHOW_ACTIVITY,) if shows else ()
        case Reported(took, ready, longest):
            return replace(state, ready=ready, pause=min(longest, max(EVERY, took / SHARE))), ()


def wait(state: ReporterState, now: float) -> float | None:
    """Return the seconds until a report or a sign of activity is due, or None while nothing can change."""
    if state.jobs and not state.running:
        return min(state.pause, _until_activity(state, now))
    return state.pause if state.program or state.running or state.ready else None


def _until_activity(state: ReporterState, now: float) -> float:
    passed = now - state.shown
    return ACTIVITY_EVERY - passed if 0 <= passed < ACTIVITY_EVERY else 0.0  # a clock may be set back
