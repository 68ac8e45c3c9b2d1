"""Decides when the driver is read, and what of it: as often as wanted, for a bounded part of the time.

And when it is closed so that a laptop's GPU can sleep: an open one keeps it awake and costs watts.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgpu_magic.ground.snapshot import Snapshot

KINDS = ("memory", "lists", "graphics")
"""The kinds of readings: each includes those before it, and costs more."""
_GRAPHICS = 5.0
"""How many lists of processes are read for each that has graphics processes too, the most expensive kind."""
_SHARE = {"memory": 0.005, "lists": 0.01, "graphics": 0.005}
"""The part of the time that each kind may spend in the driver: 2% in all, unless figures then came too rarely."""
_LONGEST = {"memory": 10.0, "lists": 10.0, "graphics": 60.0}
"""Seconds between two readings at the most, however expensive they are."""
_MOST = 0.25
"""The part of the time that readings may take at the most, where `_LONGEST` makes them come more often."""
_RETRY, _RETRY_ABSENT = 5.0, 60.0
"""Seconds between two attempts at the most, while the driver fails, and while there was never one."""

ASLEEP = "The GPUs sleep to save power, and nobody uses them. They are asked again when somebody does."
IDLE_FOR = 10.0
"""Seconds without a process on any GPU after which the driver is closed."""
SLEEP_TIMEOUT = 20.0
"""Seconds in which a GPU that can sleep falls asleep; for one that has not, the driver is not closed again."""

_PCI = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"  # its number on the PCI bus, as the system writes it (pci_ids.h)
_DISPLAY = "0x03"  # the prefix of the class of graphics and 3D controllers (pci_ids.h)


class WantedIntervals(NamedTuple):
    """How often viewers want the driver to be read.

    Attributes:
        memory: seconds between two readings.
        lists: seconds between two readings that have the lists of processes.
    """

    memory: float = 1.0
    lists: float = 2.0


class Schedule:
    """A schedule of readings: as often as is wanted, and as rarely as keeps the time in the driver within its bounds.

    Attributes:
        wanted: what the viewers want now.
    """

    def __init__(self) -> None:
        self.wanted = WantedIntervals()
        self._begun = dict.fromkeys(KINDS, float("-inf"))
        self._may = dict.fromkeys(KINDS, 0.0)
        self._mean: dict[str, float] = {}
        self._failures = 0
        self._worked = False

    def due_kind(self, now: float) -> str | None:
        """Return the most expensive kind that is due, or None."""
        due = [kind for kind in KINDS if self._due(kind) <= now]
        return due[-1] if due else None

    def may_list(self, now: float) -> bool:
        """Return whether lists may be read before they are due: a viewer shows them, and the driver has time."""
        return self.wanted.lists <= 2 * self.wanted.memory and self._may["lists"] <= now

    def next_due(self) -> float:
        """Return when a reading will be due."""
        return min(map(self._due, KINDS))

    def _due(self, kind: str) -> float:
        memory, lists = self.wanted
        every = {"memory": memory, "lists": lists, "graphics": _GRAPHICS * lists}[kind]
        return max(self._may[kind], self._begun[kind] + every)

    def record(
        self,
        kind: str,
        start: float,
        cost: float,
        *,
        opening: bool = False,
        failed: bool = False,
        absent: bool = False,
    ) -> None:
        """Record a reading, and plan the next ones.

        Args:
            kind: what was read.
            start: when it began, on the clock of `due_kind`.
            cost: seconds that it took.
            opening: whether it started the driver too, which takes seconds and is done once: the cost is not counted.
            failed: whether the driver could not be read; all kinds are tried again, soon and then more rarely.
            absent: whether this machine has no driver or GPU.
        """
        self._failures = self._failures + 1 if failed else 0
        self._worked = self._worked or not failed
        if failed:
            longest = _RETRY_ABSENT if absent and not self._worked else _RETRY
            costly = min(cost / sum(_SHARE.values()), max(_LONGEST["graphics"], cost / _MOST))
            pause = max(min(longest, 2.0 ** min(self._failures - 1, 10)), costly)
            self._begun = dict.fromkeys(KINDS, float("-inf"))
            self._may = dict.fromkeys(KINDS, start + pause)
            return
        # The cost of a reading is a mean of the last few: the sum of the pauses is the same, and a single slow reading
        # does not put off the next ones for minutes. Nor do several in a row: there is a longest pause.
        mean = 0.0
        if not opening:
            mean = self._mean.setdefault(kind, cost)
            self._mean[kind] = mean = mean + (cost - mean) / 4
        for included in KINDS:  # an expensive reading includes the cheaper ones, and does not measure them
            self._begun[included] = start
            if included == kind:
                self._may[kind] = max(self._may[kind], start + min(mean / _SHARE[kind], _LONGEST[kind]))
                break
        if not opening:
            self._may = {each: max(may, start + cost / _MOST) for each, may in self._may.items()}


class DriverSleep:
    """The decisions when the driver is closed. Times are those of the monotonic clock."""

    def __init__(self) -> None:
        self._gpus = tuple(_gpus())
        self._idle_since: float | None = None
        self._trying_since: float | None = None
        self._awake = False

    def is_asleep(self) -> bool:
        """Return whether all GPUs of this machine sleep, without waking any."""
        asleep = self._all_have("runtime_status", "suspended")
        if asleep:
            self._trying_since = None  # whatever wakes them justifies a reading
        return asleep

    def should_begin(self, snapshot: Snapshot, now: float) -> bool:
        """Return after a reading whether to close the driver: no GPU was used for a while, and all may sleep."""
        if self._awake or snapshot.error or snapshot.processes or not self._all_have("control", "auto"):
            self._idle_since = None
            return False
        self._idle_since = now if self._idle_since is None else self._idle_since
        if now - self._idle_since < IDLE_FOR:
            return False
        self._idle_since, self._trying_since = None, now
        return True

    def should_go_on(self, now: float) -> bool:
        """Return whether the driver stays closed for GPUs that are still awake."""
        if self._trying_since is None:
            return False
        if now - self._trying_since < SLEEP_TIMEOUT:
            return True
        self._trying_since, self._awake = None, True
        return False

    def _all_have(self, file: str, value: str) -> bool:
        """Return whether a power file of all GPUs has this value (sysfs-devices-power, Linux); there must be some."""
        return {_text(f"{gpu}/power/{file}") for gpu in self._gpus} == {value}


def _gpus() -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in os.listdir(_PCI):
            device = f"{_PCI}/{name}"
            if _text(f"{device}/vendor") == _NVIDIA and _text(f"{device}/class").startswith(_DISPLAY):
                yield device


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""
