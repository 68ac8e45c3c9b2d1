"""What the system tells of processes by their pids: whether one exists, when it began, and whose child it is.

Source: proc_pid_stat(5).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def lives(pid: int) -> bool:
    """Tell whether a process with this pid exists here, of whatever user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def elsewhere(pids: Iterable[int]) -> frozenset[int]:
    """Return those of some pids that do not exist here: a driver may list those of another namespace."""
    return frozenset(pid for pid in set(pids) if not lives(pid))


def began(pid: int) -> int | None:
    """Return when a process began, in the system's ticks since its start; None if it has ended.

    A zombie has ended: its parent may never wait for it.
    """
    try:
        state, *rest = _stat(pid)
    except OSError:
        return None
    return None if state in "ZX" else int(rest[18])


def family(pid: int | None = None) -> frozenset[int]:
    """Return the pids of a process, by default this one, and of its ancestors."""
    found: set[int] = set()
    pid = pid or os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        with contextlib.suppress(OSError):
            pid = int(_stat(pid)[1])
    return frozenset(found)


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/pid/stat`` from the state on, which is its third."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
