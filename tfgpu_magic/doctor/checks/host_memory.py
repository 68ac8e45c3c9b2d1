"""How much of the host's memory may still be used, on the machine and in the cgroups that this process is in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.machine import Machine
from tfgpu_magic.isolate.process import host_memory
from tfgpu_magic.isolate.process.host_memory import Limit
from tfgpu_magic.units import BINARY

LEAST = 2 * BINARY["GiB"]
"""Bytes below which programs are soon killed: TensorFlow's import takes 0.6 GiB, and an isolated call a copy of it."""

_MORE = "The kernel kills what takes more, without a word: TensorFlow's import alone takes 0.6 GiB. End what uses it, "

FREE = Outcome(
    "free", Severity.GOOD, "{available_bytes} of {total_bytes} are available, and no cgroup sets a limit here."
)
LIMITED = Outcome(
    "limited",
    Severity.GOOD,
    "{left_bytes} may still be used: the cgroup {cgroup} has {used_bytes} in use of the {limit_bytes} that it allows. "
    "The machine has {available_bytes} available.",
)
TIGHT = Outcome(
    "tight",
    Severity.WARNING,
    "Only {left_bytes} may still be used: the cgroup {cgroup} has {used_bytes} in use of the {limit_bytes} that it "
    "allows.",
    f"{_MORE}or ask for more where the limit is set: the job, the container, the Hub's spawner.",
)
SHORT = Outcome(
    "short",
    Severity.WARNING,
    "Only {available_bytes} of {total_bytes} are available on this machine.",
    f"{_MORE}or work elsewhere.",
)
PAGE_CACHE = Outcome(
    "page-cache",
    Severity.NOTE,
    "Parking may use {parking_bytes} of it: in the cgroup {cgroup}, which allows {limit_bytes}, {cache_bytes} are page "
    "cache, and parking does not count on its being dropped.",
)
UNKNOWN = Outcome("unknown", Severity.NOTE, "The system does not report it: /proc/meminfo cannot be read.")


def check(machine: Machine) -> Iterator[Finding]:
    """Tell the room in the cgroup that has least of it, and on the machine, and what of it parking may use."""
    sizes = host_memory.machine(machine.root / "proc")
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    if total is None or available is None:
        yield UNKNOWN()
        return
    found = list(host_memory.limits(machine.root / "proc", machine.root / "sys/fs/cgroup"))
    limits = [one for one in found if one.most < total]
    of_machine = {"total_bytes": total, "available_bytes": available}
    tightest = min(limits, key=lambda one: one.left, default=None)
    if tightest is not None:
        yield (LIMITED if tightest.left >= LEAST else TIGHT)(
            cgroup=tightest.cgroup,
            left_bytes=min(tightest.left, available),
            used_bytes=max(0, tightest.used - tightest.cache),
            limit_bytes=tightest.most,
            **of_machine,
        )
    if available < LEAST:
        yield SHORT(**of_machine)
    elif tightest is None:
        yield FREE(**of_machine)
    yield from _for_parking(found, available if tightest is None else min(tightest.left, available))


def _for_parking(limits: Iterable[Limit], left: int) -> Iterator[Finding]:
    """Tell what parking may use, where that is less than what is left: it never counts on what is to be dropped."""
    fullest = min(limits, key=lambda one: one.untouched, default=None)
    if fullest is not None and fullest.untouched < left:
        yield PAGE_CACHE(
            cgroup=fullest.cgroup,
            parking_bytes=fullest.untouched,
            cache_bytes=fullest.cache,
            limit_bytes=fullest.most,
        )
