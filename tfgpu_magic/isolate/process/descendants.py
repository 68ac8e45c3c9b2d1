"""The descendants of calls that have ended: they get SIGTERM, then SIGKILL, and a call is over when they are gone.

Only the fork server can see them: it adopts the children of a call that has ended, and their children.
Source: prctl(2) on PR_SET_CHILD_SUBREAPER; proc(5), ``/proc/pid/task/tid/children``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

TERM_TIMEOUT = 1.0
"""Seconds after its call's end in which a process may tidy up: `multiprocessing`'s resource tracker frees memory."""

KILL_TIMEOUT = 1.0
"""Seconds in which a killed descendant is waited for: it may hang in a driver."""

_TICK = 0.1  # seconds between two looks at them


@dataclass(slots=True, eq=False)
class Ended:
    """A call that has ended.

    Attributes:
        status_pipe: the pipe that its exit status is written to.
        status: its exit status.
        when: when it ended.
    """

    status_pipe: int
    status: int
    when: float = field(default_factory=time.monotonic)


class Descendants:
    """The descendants of ended calls, and when each was first seen.

    Attributes:
        ended: the calls that have ended while descendants of calls are still alive, theirs or others'.
    """

    def __init__(self) -> None:
        self.ended: list[Ended] = []
        self._seen: dict[int, float] = {}

    def end(self, living: set[int], new: Sequence[Ended]) -> list[Ended]:
        """Signal descendants, with SIGKILL where they have had SIGTERM. Return the calls that are over.

        Args:
            living: all living descendants. Only this process can reap them, so their pids are not reused.
            new: the calls that have ended since the last invocation.
        """
        now = time.monotonic()
        self.ended += new
        ending = any(now < one.when + TERM_TIMEOUT for one in self.ended)
        for pid in living:
            tidies_up = ending and now < self._seen.get(pid, now) + TERM_TIMEOUT
            if pid not in self._seen or not tidies_up:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGTERM if tidies_up else signal.SIGKILL)
        self._seen = {pid: self._seen.get(pid, now) for pid in living}
        waits = self._are_young()
        over = [one for one in self.ended if not waits or now >= one.when + TERM_TIMEOUT + KILL_TIMEOUT]
        self.ended = [one for one in self.ended if one not in over]
        return over

    def due(self) -> float | None:
        """Return the seconds until `end` must be invoked again; None where nothing is waited for."""
        return _TICK if self.ended or self._are_young() else None

    def _are_young(self) -> bool:
        """Tell whether one may still end: what has been killed a while ago hangs, and is not waited for."""
        return any(time.monotonic() < when + TERM_TIMEOUT + KILL_TIMEOUT for when in self._seen.values())


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
