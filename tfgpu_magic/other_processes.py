"""Reads for a plan what this user's other processes have picked, and may yet take, of the GPUs."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgpu_magic.config import promises
from tfgpu_magic.monitor import claims

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.config.policy import Policy
    from tfgpu_magic.config.process_state import ProcessState
    from tfgpu_magic.config.promises import Promise
    from tfgpu_magic.monitor.directory import BoardDirectory
    from tfgpu_magic.monitor.report import Report
    from tfgpu_magic.monitor.snapshot import Snapshot


_LEASES = "leases-"
"""The beginning of the lease table's name."""


@dataclass(frozen=True, slots=True)
class OtherProcesses:
    """What the user's other processes report of themselves, and what isolated calls have leased.

    Attributes:
        reports: the reports of kernels and programs.
        leases: what calls have leased, as promises; without what they hold.
    """

    reports: tuple[Report, ...] = ()
    leases: tuple[Promise, ...] = ()

    def beside(self, process: ProcessState, snapshot: Snapshot) -> ProcessState:
        """Return the state of a process with what others have picked, and may yet take, of these GPUs."""
        beside = promises.gather(snapshot, self.reports, self.leases)
        return replace(process, claims=claims.picks(self.reports), promises=beside)


def now() -> OtherProcesses:
    """Read what the others have now, in less than a millisecond or two; nothing where the board cannot be used."""
    with claims.board() as place:
        return _read(place)


@contextlib.contextmanager
def settling(policy: Policy) -> Iterator[OtherProcesses]:
    """Give what `now` returns. If the policy depends on it, no other process of this user settles one meanwhile."""
    choice = policy.choice
    if not (choice is not None and choice.picks) and not any(request.divided for request in policy.memory):
        yield now()
        return
    with claims.alone() as place:
        yield _read(place)


def _read(place: BoardDirectory | None) -> OtherProcesses:
    if place is None:
        return OtherProcesses()
    reports = claims.reports(place)
    if not place.names(_LEASES):  # no isolated call was ever made here
        return OtherProcesses(reports)
    from tfgpu_magic.isolate import lease_reader  # few processes make isolated calls, and the others need none of it

    leases = [one for one in lease_reader.leases(place) if one.pid != os.getpid()]
    return OtherProcesses(reports, tuple(leases))
