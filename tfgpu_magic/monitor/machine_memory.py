"""The memory of this machine itself, which some GPUs share."""

from __future__ import annotations

import contextlib
import os


def available() -> int | None:
    """Return how many bytes Linux could give: other programs use the machine's memory too."""
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
        return next((1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:")), None)
    return None


def total_memory() -> int:
    """Return how many bytes this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
