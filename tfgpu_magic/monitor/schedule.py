"""When the driver is read, and what of it: as often as is wanted, and at a bounded part of the time. Pure."""

from __future__ import annotations

from typing import NamedTuple

_KINDS = ("memory", "lists", "graphics")
"""What a reading has: each kind includes those before it, and is dearer."""
_GRAPHICS = 5.0
"""How many lists of processes are read for each that has graphics processes too, the dearest."""
_SHARE = {"memory": 0.005, "lists": 0.01, "graphics": 0.005}
"""What part of the time each kind may spend in the driver: 2% in all, unless that would hide figures for too long."""
_LONGEST = {"memory": 10.0, "lists": 10.0, "graphics": 60.0}
"""Seconds between two readings at the most, however dear they are."""
_MOST = 0.25
"""What part of the time readings may take that are dearer still."""
_RETRY, _RETRY_ABSENT = 5.0, 60.0
"""Seconds between two attempts at the most, while the driver fails, and while there was never one."""


class Wanted(NamedTuple):
    """How often those who look want the driver to be asked.

    Attributes:
        memory: seconds between two readings.
        lists: seconds between two of these that have the lists of processes.
    """

    memory: float = 1.0
    lists: float = 2.0


class Schedule:
    """When to read what: as often as is wanted, and as rarely as keeps the driver's part of the time within its bounds.

    Attributes:
        wanted: by those who look, now.
    """

    def __init__(self) -> None:
        self.wanted = Wanted()
        self._begun = dict.fromkeys(_KINDS, float("-inf"))
        self._may = dict.fromkeys(_KINDS, 0.0)
        self._mean: dict[str, float] = {}
        self._failures = 0
        self._worked = False

    def kind(self, now: float) -> str | None:
        """Return the dearest kind that is due, or None."""
        due = [kind for kind in _KINDS if self._due(kind) <= now]
        return due[-1] if due else None

    def may_list(self, now: float) -> bool:
        """Tell whether lists may be read before they are due: somebody looks at them, and the driver has time."""
        return self.wanted.lists <= 2 * self.wanted.memory and self._may["lists"] <= now

    def next(self) -> float:
        """Return when something will be due."""
        return min(map(self._due, _KINDS))

    def _due(self, kind: str) -> float:
        memory, lists = self.wanted
        every = {"memory": memory, "lists": lists, "graphics": _GRAPHICS * lists}[kind]
        return max(self._may[kind], self._begun[kind] + every)

    def done(
        self,
        kind: str,
        start: float,
        cost: float,
        *,
        opening: bool = False,
        failed: bool = False,
        absent: bool = False,
    ) -> None:
        """Plan on from a reading.

        Args:
            kind: what was read.
            start: when it began, on the clock that `kind` is asked by.
            cost: seconds that it took.
            opening: it started the driver too, which takes seconds and is done once: the cost is not counted.
            failed: there was no driver to read; all kinds are tried again, soon and then more rarely.
            absent: nor is there any on this machine.
        """
        self._failures = self._failures + 1 if failed else 0
        self._worked = self._worked or not failed
        if failed:
            longest = _RETRY_ABSENT if absent and not self._worked else _RETRY
            dear = min(cost / sum(_SHARE.values()), max(_LONGEST["graphics"], cost / _MOST))
            pause = max(min(longest, 2.0 ** min(self._failures - 1, 10)), dear)
            self._begun = dict.fromkeys(_KINDS, float("-inf"))
            self._may = dict.fromkeys(_KINDS, start + pause)
            return
        # What a reading costs is a mean of the last few: the sum of the pauses is the same, and a single slow reading
        # does not take the next ones out of sight for minutes. Nor do several in a row: there is a longest pause.
        mean = 0.0
        if not opening:
            mean = self._mean.setdefault(kind, cost)
            self._mean[kind] = mean = mean + (cost - mean) / 4
        for included in _KINDS:  # a dear reading is a cheaper one too, and tells nothing of what that costs
            self._begun[included] = start
            if included == kind:
                self._may[kind] = max(self._may[kind], start + min(mean / _SHARE[kind], _LONGEST[kind]))
                break
        if not opening:
            self._may = {each: max(may, start + cost / _MOST) for each, may in self._may.items()}
