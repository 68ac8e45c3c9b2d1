"""How much memory this process may still use, on the machine and in its cgroups; larger copies are refused.

A copy for another process belongs to no process while it is written, so the kernel's out-of-memory killer would kill
its writer.
Source: proc(5), ``/proc/meminfo``; the kernel's documentation of memory cgroups, versions 1 and 2.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfgpu_magic.ground.units import MIB, rounded

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")

MARGIN = 64 * MIB
"""Bytes from which a copy is checked, and that must be left over."""

_FILES = {  # the limits, the use, and the page cache in that use, which the kernel drops when it needs room
    "": ("memory.max", "memory.current", ("inactive_file", "active_file")),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
}
_UNLIMITED = 2**63


@dataclass(frozen=True, slots=True)
class CgroupLimit:
    """The memory limit of a cgroup.

    Attributes:
        cgroup: its path below the root of its hierarchy.
        most: the bytes that its processes may use together.
        used: the bytes that they use, the page cache included.
        cache: the page cache in that, which the kernel drops when it needs room.
    """

    cgroup: str
    most: int
    used: int
    cache: int

    @property
    def free(self) -> int:
        """The bytes that they may still use, once the page cache is dropped."""
        return max(0, self.most - self.used + self.cache)


def check_room(size: int) -> None:
    """Refuse a copy of `size` bytes if it would run the machine, or our cgroup, out of memory.

    Raises:
        OSError: less is left.
    """
    if size < MARGIN:
        return
    room = free_bytes()
    if room is not None and room < size + MARGIN:
        raise OSError(
            errno.ENOMEM,
            f"There is no room for {rounded(size)} of memory to share with another process: {rounded(room)} are free",
        )


def free_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Return the bytes that this process may still fill; None if the system does not report them."""
    sizes = machine(proc)
    if "MemAvailable" not in sizes:
        return None
    rooms = [sizes["MemAvailable"], *(limit.free for limit in limits(proc, cgroups))]
    return min(rooms) + sizes.get("SwapFree", 0)


def oom_kills(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Return how often the out-of-memory killer has killed, in our cgroup or on this machine; None if unknown.

    If two readings differ, it was at work between them; if they are equal, it was not.
    Source: proc(5), ``/proc/vmstat``; the kernel's cgroup-v2 documentation, ``memory.events``.
    """
    counts: list[int] = []
    with contextlib.suppress(OSError):
        ours = re.search(r"^0::(/.*)$", (proc / "self/cgroup").read_text(), re.MULTILINE)
        counts += _count(cgroups / (ours[1].strip("/") if ours else "") / "memory.events")
    counts += _count(proc / "vmstat")
    return sum(counts) if counts else None


def _count(file: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(number) for number in re.findall(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)]
    return []


def machine(proc: Path = PROC) -> dict[str, int]:
    """Return the sizes of the machine's memory in bytes, as ``/proc/meminfo`` names them; empty if it has none."""
    return _numbers(proc / "meminfo")


def limits(proc: Path = PROC, cgroups: Path = CGROUPS) -> Iterator[CgroupLimit]:
    """Yield the limits of the cgroups that this process is in, the innermost first."""
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            kind = "memory" if "memory" in controllers.split(",") else controllers
            if kind not in _FILES:
                continue
            root = cgroups / kind
            # A container may read its path on the machine, of which it sees only the end: then the root is its own.
            ours = root / path.strip("/")
            for folder in (ours, *ours.parents):
                if folder.is_relative_to(root) and (limit := _limit(folder, root, kind)) is not None:
                    yield limit


def _limit(folder: Path, root: Path, kind: str) -> CgroupLimit | None:
    limit, used, cache = _FILES[kind]
    most = _size(folder / limit)
    with contextlib.suppress(OSError, ValueError):  # no such cgroup
        stat = _numbers(folder / "memory.stat")
        if most < _UNLIMITED:
            return CgroupLimit(
                cgroup=str("/" / folder.relative_to(root)),
                most=most,
                used=int((folder / used).read_text()),
                cache=sum(stat.get(name, 0) for name in cache),
            )
    return None


def _size(file: Path) -> int:
    """Read a limit; the word of none is no number."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return _UNLIMITED


def _numbers(file: Path) -> dict[str, int]:
    """Read a file of names and sizes; return the sizes in bytes."""
    with contextlib.suppress(OSError):
        found = re.findall(r"^(\w+):? +(\d+)( kB)?$", file.read_text(), re.MULTILINE)
        return {name: int(size) * (1024 if unit else 1) for name, size, unit in found}
    return {}
