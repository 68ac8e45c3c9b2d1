"""Follows the parking of a process, so that whoever asked for it knows whether its GPU state is away.

The record alone does not tell: the helper may die, and its directory be removed, while the state is on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgpu_magic.parking import client
from tfgpu_magic.parking import refusals as why
from tfgpu_magic.parking.states import Phase

if TYPE_CHECKING:
    from tfgpu_magic.parking.messages import Outcome, Progress
    from tfgpu_magic.parking.record import Entry

_IN_DOUBT = {why.ELSEWHERE, why.HOLDS_NOTHING}
"""What another helper says of a process that one has parked which died with its record."""


class Followed:
    """An attempt to park a process.

    Args:
        pid: the process; None is this one.
    """

    def __init__(self, pid: int | None = None) -> None:
        self._pid = pid
        self._begun: Entry | None = None  # what the record said when the state was about to go

    def heard(self, progress: Progress) -> None:
        """Take what the helper tells of it."""
        if progress.step != "checks":
            self._begun = client.parked(self._pid) or self._begun

    def away(self, outcome: Outcome | None) -> Entry | None:
        """Return what is known of the process if its state is away, or may be; None where it has its state.

        Args:
            outcome: what the helper says; None where it has not answered.
        """
        for entry in (None if outcome is None else outcome.entry, client.parked(self._pid)):
            if is_away(entry):
                return entry
        in_doubt = outcome is None or any(one.reason in _IN_DOUBT for one in outcome.refusals)
        return self._begun if in_doubt else None


def is_away(entry: Entry | None) -> bool:
    """Tell whether the record says that a process is without its GPU state."""
    return entry is not None and (entry.parked or entry.phase is Phase.FAILED)
