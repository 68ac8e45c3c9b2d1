"""What calls leave behind when they end: it is told to end, killed when it does not, and belongs to its call alone.

Only the fork server sees it: the children of a call that has ended are given to it, and so are theirs.
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

NOTICE = 1.0
"""Seconds from its call's end in which a process may tidy up: `multiprocessing`'s resource tracker frees memory."""

HOPELESS = 1.0
"""Seconds in which one that was killed is waited for: it may hang in a driver."""


@dataclass(slots=True, eq=False)
class Ended:
    """A call that has ended.

    Attributes:
        told: the pipe that its exit status goes to.
        status: its exit status.
        left: its descendants that still live.
        when: when it ended.
    """

    told: int
    status: int
    left: set[int] = field(default_factory=set)
    when: float = field(default_factory=time.monotonic)


class Descendants:
    """Waits for what ended calls have left behind.

    Attributes:
        over: the calls that have ended, and whose descendants may still end.
    """

    def __init__(self) -> None:
        self.over: list[Ended] = []
        self._hopeless: set[int] = set()

    def end(self, living: set[int], new: Sequence[Ended]) -> list[Ended]:
        """End descendants, by force where they were told before. Return the calls that have none left.

        Args:
            living: all descendants that there are. They are ours to reap, so the numbers are theirs.
            new: the calls that have ended since this was asked last.
        """
        now = time.monotonic()
        self.over += new
        self._hopeless &= living
        fresh = living.difference(self._hopeless, *(one.left for one in self.over))
        heirs = [one for one in self.over if one in new or not one.left <= living]  # of a descendant that has ended
        _signal(fresh, signal.SIGTERM if heirs else signal.SIGKILL)
        if not heirs:
            self._hopeless |= fresh
        for one in self.over:
            one.left = (one.left | fresh if one in heirs else one.left) & living
            if now >= one.when + NOTICE:
                _signal(one.left, signal.SIGKILL)
            if now >= one.when + NOTICE + HOPELESS:
                self._hopeless |= one.left
                one.left = set()
        rid = [one for one in self.over if not one.left]
        self.over = [one for one in self.over if one.left]
        return rid

    def due(self) -> float | None:
        """Seconds until it must be seen to them again; None where there are none."""
        now = time.monotonic()
        ends = [one.when + more for one in self.over for more in (NOTICE, NOTICE + HOPELESS)]
        return min((end - now for end in ends if end > now), default=0.0) if ends else None


def children() -> set[int]:
    """All children of this process."""
    found: set[int] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread has ended
            found.update(map(int, listing.read_text().split()))
    return found


def kill(group: int, session: int) -> None:
    """Kill what lives of a call whose fork server has died: its group, as far as that is of the fork server's session.

    When nothing of it lives, the number may be another's.
    """
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            _, _, *theirs = entry.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if theirs == [str(group), str(session)]:
                os.kill(int(entry.parent.name), signal.SIGKILL)


def _signal(pids: Collection[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
