"""The cgroups whose limits of GPU memory hold for this process, and what such a limit leaves (driver 615 and later)."""

from __future__ import annotations

import os

UNLIMITED = 2**64 - 1
"""The hard limit that is none: NVML_DEVICE_MEMORY_LIMIT_MAX."""
DRIVERS_PART = 240 * 2**20  # without `units`, whose import takes as long as a look
"""Bytes of a limit that no process can have beside CUDA's contexts.

One party has measured: of 30,000 and of 48,943 MiB a first process could have 29,184 and 48,128 (RTX PRO 6000, driver
615.71.09), both multiples of 512. So 816 MiB at most are gone, its context among them, for which we count 576.
"""


def cgroups() -> list[str]:
    """Return the folders of this process's cgroup and of each one above it, the nearest first; none without cgroups.

    Limits exist in cgroups of version 2 only. Source: cgroups(7), proc_pid_mountinfo(5).
    """
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            own = next(line[3:-1] for line in file if line.startswith("0::/"))
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            part, root = next(line.split(" ")[3:5] for line in file if " - cgroup2 " in line)
    except (OSError, StopIteration):
        return []
    names = own.removeprefix(part.rstrip("/")).strip("/").split("/")
    return [os.path.join(root, *names[:count]).rstrip("/") for count in range(len(names), -1, -1)]


def remaining(limits: list[tuple[int, int]], free: int | None, total: int | None) -> dict[str, int | None]:
    """Return what limits leave of a GPU, as fields of `Gpu`.

    Args:
        limits: of each cgroup that is limited, the hard limit and what is used there.
        free: bytes that are free of the GPU.
        total: bytes of the GPU, as they are shown here; a limit beyond them is none.
    """
    if not limits:
        return {}
    room = max(0, min(hard - used for hard, used in limits) - DRIVERS_PART)
    limit = min(limits)[0]
    return {
        "limit": None if total is not None and total < limit else limit,
        "free": room if free is None else min(free, room),
    }
