"""The descendants of calls that have ended: they get SIGTERM, then SIGKILL, and each belongs to one call.

Only the fork server can see them: it adopts the children of a call that has ended, and their children.
Source: prctl(2) on PR_SET_CHILD_SUBREAPER; proc(5), ``/proc/pid/task/tid/children``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TERM_TIMEOUT = 1.0
"""Seconds after its call's end in which a process may tidy up: `multiprocessing`'s resource tracker frees memory."""

KILL_TIMEOUT = 1.0
"""Seconds in which a killed descendant is waited for: it may hang in a driver."""


@dataclass(slots=True, eq=False)
class Ended:
    """A call that has ended.

    Attributes:
        status_pipe: the pipe that its exit status is written to.
        status: its exit status.
        left: its descendants that are still alive.
        when: when it ended.
    """

    status_pipe: int
    status: int
    left: set[int] = field(default_factory=set)
    when: float = field(default_factory=time.monotonic)


class Descendants:
    """The descendants of ended calls, and when each is signalled or given up.

    Attributes:
        ended: the calls that have ended and whose descendants may still be alive.
    """

    def __init__(self) -> None:
        self.ended: list[Ended] = []
        self._unkillable: set[int] = set()

    def end(self, living: set[int], new: Sequence[Ended]) -> list[Ended]:
        """Signal descendants, with SIGKILL where they have had SIGTERM. Return the calls that have none left.

        Args:
            living: all living descendants. Only this process can reap them, so their pids are not reused.
            new: the calls that have ended since the last invocation.
        """
        now = time.monotonic()
        self.ended += new
        self._unkillable &= living
        fresh = living.difference(self._unkillable, *(one.left for one in self.ended))
        heirs = [one for one in self.ended if one in new or not one.left <= living]  # a descendant of theirs has ended
        _signal(fresh, signal.SIGTERM if heirs else signal.SIGKILL)
        if not heirs:
            self._unkillable |= fresh
        for one in self.ended:
            one.left = (one.left | fresh if one in heirs else one.left) & living
            if now >= one.when + TERM_TIMEOUT:
                _signal(one.left, signal.SIGKILL)
            if now >= one.when + TERM_TIMEOUT + KILL_TIMEOUT:
                self._unkillable |= one.left
                one.left = set()
        finished = [one for one in self.ended if not one.left]
        self.ended = [one for one in self.ended if one.left]
        return finished

    def due(self) -> float | None:
        """Return the seconds until `end` must be invoked again; None where there are no descendants."""
        now = time.monotonic()
        ends = [one.when + more for one in self.ended for more in (TERM_TIMEOUT, TERM_TIMEOUT + KILL_TIMEOUT)]
        return min((end - now for end in ends if end > now), default=0.0) if ends else None


def children() -> set[int]:
    """Return the pids of all children of this process."""
    found: set[int] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread has ended
            found.update(map(int, listing.read_text().split()))
    return found


def kill(group: int, session: int) -> None:
    """Kill the living processes of a call whose fork server has died: its group, within the fork server's session.

    When none of them is alive, the group's number may belong to another program.
    """
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            _, _, *ids = entry.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if ids == [str(group), str(session)]:
                os.kill(int(entry.parent.name), signal.SIGKILL)


def _signal(pids: Collection[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
